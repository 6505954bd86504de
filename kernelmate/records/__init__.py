"""Frozen records that packages exchange.

Lines and columns count from 1, columns in characters (not bytes, not UTF-16 units). Sizes in memory are bytes, times
are microseconds unless a name says otherwise. `Verdict` and the records it contains define the JSON schema that every
front end shows: field names and order are the schema's, and `kernelmate.report.json` serialises them.
"""

from __future__ import annotations

from kernelmate.records.calibration import Calibration
from kernelmate.records.causes import Cause
from kernelmate.records.compiled import Compiled, CompileOptions, Diagnostic, Occupancy, Resources, Severity, Target
from kernelmate.records.contract import SLOWDOWN, Argument, Contract, Direction, LaunchShape, Size, Tolerance
from kernelmate.records.device import Device, parse_device
from kernelmate.records.findings import Finding, FindingCode
from kernelmate.records.gate import Allowance, Gate, GatedKernel, GateMetric, MetricChange
from kernelmate.records.history import CommandName, Cost, JudgementEntry, KnownKernel, Recorded
from kernelmate.records.judging import (
    MOSTLY_LAUNCHING,
    NO_RACE_SEEN,
    BuildVariant,
    Judgement,
    JudgeTask,
    SizeMetrics,
    Version,
)
from kernelmate.records.kernels import Anchor, Kernel, LaunchSite, Parameter, Signature, Unit
from kernelmate.records.lines import LineCounters
from kernelmate.records.listing import Control, Listing, Live, PtxInstruction, SassInstruction, SourcePlace
from kernelmate.records.portable import (
    Confirmation,
    ConfirmationReport,
    JudgingInputs,
    Outcome,
    PortableFile,
    PortableJudgement,
    Promise,
)
from kernelmate.records.suggestions import (
    Candidate,
    Claim,
    Constraint,
    Judged,
    Objective,
    Optimization,
    Preference,
    SearchState,
)
from kernelmate.records.tuning import DispatchRule, Tuned, TunedVersion
from kernelmate.records.verdict import (
    BackendName,
    Bound,
    CacheEstimate,
    Case,
    Counters,
    FirstWrong,
    HardwareProfile,
    InstructionMix,
    MetricName,
    ObjectiveResult,
    OpcodeCount,
    Roofline,
    Roofs,
    Speedup,
    Timing,
    Verdict,
    Work,
)

__all__ = [
    "MOSTLY_LAUNCHING",
    "NO_RACE_SEEN",
    "SLOWDOWN",
    "Allowance",
    "Anchor",
    "Argument",
    "BackendName",
    "Bound",
    "BuildVariant",
    "CacheEstimate",
    "Calibration",
    "Candidate",
    "Case",
    "Cause",
    "Claim",
    "CommandName",
    "CompileOptions",
    "Compiled",
    "Confirmation",
    "ConfirmationReport",
    "Constraint",
    "Contract",
    "Control",
    "Cost",
    "Counters",
    "Device",
    "Diagnostic",
    "Direction",
    "DispatchRule",
    "Finding",
    "FindingCode",
    "FirstWrong",
    "Gate",
    "GateMetric",
    "GatedKernel",
    "HardwareProfile",
    "InstructionMix",
    "JudgeTask",
    "Judged",
    "Judgement",
    "JudgementEntry",
    "JudgingInputs",
    "Kernel",
    "KnownKernel",
    "LaunchShape",
    "LaunchSite",
    "LineCounters",
    "Listing",
    "Live",
    "MetricChange",
    "MetricName",
    "Objective",
    "ObjectiveResult",
    "Occupancy",
    "OpcodeCount",
    "Optimization",
    "Outcome",
    "Parameter",
    "PortableFile",
    "PortableJudgement",
    "Preference",
    "Promise",
    "PtxInstruction",
    "Recorded",
    "Resources",
    "Roofline",
    "Roofs",
    "SassInstruction",
    "SearchState",
    "Severity",
    "Signature",
    "Size",
    "SizeMetrics",
    "SourcePlace",
    "Speedup",
    "Target",
    "Timing",
    "Tolerance",
    "Tuned",
    "TunedVersion",
    "Unit",
    "Verdict",
    "Version",
    "Work",
    "parse_device",
]
