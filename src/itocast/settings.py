"""What settings are."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Checked, frozen settings that can be written to JSON; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
