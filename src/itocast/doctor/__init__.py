"""Where intervals fail, in plain words: the evidence of a backtest, faults told from noise, and what would help."""

from __future__ import annotations

from itocast.doctor.diagnosis import Diagnosis, Examined, diagnose, examine, judge
from itocast.doctor.faults import Finding

__all__ = ["Diagnosis", "Examined", "Finding", "diagnose", "examine", "judge"]
