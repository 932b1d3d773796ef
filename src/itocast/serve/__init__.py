"""A server of forecasts: models in folders, asked over HTTP."""
