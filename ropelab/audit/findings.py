"""All findings of a configuration: every rule of the audit, worst findings first."""

from collections.abc import Sequence

from ropelab.audit.aspects import Aspect
from ropelab.audit.audit_case import AuditCase
from ropelab.audit.differences import find_differences
from ropelab.audit.errors import find_errors
from ropelab.audit.file_rules import check_file, find_contradictions
from ropelab.audit.finding import LEVELS, AuditFinding, make_finding
from ropelab.audit.lengths import find_length_differences, find_lengths_beyond
from ropelab.audit.notes import make_notes


def collect_findings(
    case: AuditCase, aspects: Sequence[Aspect]
) -> tuple[AuditFinding, ...]:
    """Return all findings, worst first.

    Findings of the same level are in the order of the rules.
    """
    findings = [*find_errors(case), *find_lengths_beyond(case)]
    for aspect in aspects:
        if aspect.differs:
            findings.append(make_finding("W16", aspect=aspect.describe()))
    for aspect in aspects:
        if aspect.unread_runtimes and not aspect.differs:
            findings.append(make_finding("N04", aspect=aspect.describe()))

    findings += find_contradictions(case)
    findings += find_differences(case)
    findings += find_length_differences(case)
    findings += check_file(case)
    findings += make_notes(case)
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))
