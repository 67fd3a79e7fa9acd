"""The elite of a whole run under noise: duels, and fresh measurements of the one who holds the place.

A candidate whose first measurement lies above the elite's is measured afresh before it is told (a duel), and takes
the place only if that second figure is clearly better (elite.Gain.is_clear). Three doubts remain, and each has its
answer here, as a measurement that `Throne.wanted` asks for:

- The holder may itself have been lucky: it is measured afresh as soon as it has won, and after every `reduel_after`
  challenges that it survived, the wait growing each time; the new figures replace the one that it won by.
- A wide interval may keep a better candidate out: while a rival's gain is promising, the one of the two with the wider
  interval is measured again, at once up to BOUTS times, then once for every re-duel of the holder. Fresh figures of
  one program are pooled, so the doubt shrinks with every look and never keeps a faster candidate out for ever.
- The judge or the device may have changed: the holder is measured by the new one before anybody is compared with it.

All of it is a fold over what was told and measured afresh, in order: no clock and no chance.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import DUPLICATE_OF, Evaluated
from islands.elite import Gain, error_of, fitness, gain_over, identity_of, pooled

DUEL = "duel"
"""Feature of an evaluation that was told after a duel: FOUGHT or UNDECIDED."""
FOUGHT = "fought"
"""The evaluation is the second, fresh one."""
UNDECIDED = "undecided"
"""The fresh one gave no verdict, so the first one was told; it wins nothing."""

RIVALS = 8
"""The strongest programs besides the holder that are remembered as possible successors."""
BOUTS = 3
"""Fresh measurements of a promising rival before it waits for the holder's next re-duel."""
ROUNDING = 1 - 1e-9
"""Equal figures may differ by less after a logarithm and back."""
WIDE = 1.5
"""So many times a rival's error: a holder known that much less well is measured before it can keep a rival out."""
NO_WORD = (Verdict.NO_VERDICT, Verdict.VERIFIED)
"""Verdicts that say nothing against a program, and give no time."""


@dataclass(frozen=True, slots=True)
class Fall:
    """The end of a reign."""

    after: int
    """Candidates told to the population before it."""
    candidate_id: str
    by: str
    """Id of the successor; empty where none was left."""
    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A told candidate that should be measured afresh, and why."""

    evaluated: Evaluated
    role: str
    """`holder` or `rival`."""
    why: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A program with its estimate, and the fresh measurements that this rests on."""

    evaluated: Evaluated
    fresh: tuple[Evaluation, ...] = ()
    """Of a rival its duels, of a holder its re-duels; empty while the estimate is older than its reign."""
    tries: int = 0
    """Fresh measurements, those without a verdict included."""

    @property
    def evaluation(self) -> Evaluation:
        return self.evaluated.evaluation

    def measured(self, evaluation: Evaluation) -> Claim:
        """With one more fresh, correct measurement; its first figure, which chose it, counts no more.

        Features stay as they were told, so that the program stays in its cell.
        """
        fresh = (*self.fresh, evaluation)
        estimate = dataclasses.replace(pooled(fresh), features=self.evaluation.features)
        return Claim(dataclasses.replace(self.evaluated, evaluation=estimate), fresh, self.tries + 1)


class Throne:
    """Who is the elite of the run, who might be, and whose figure is to be looked at again."""

    def __init__(self, reduel_after: int) -> None:
        self.reduel_after = reduel_after
        """Challenges survived before the first re-duel; 0: nobody is ever measured again."""
        self.holder: Claim | None = None
        self.falls: list[Fall] = []
        """Every lost reign, oldest first."""
        self.challenges = 0
        """Duels that the holder survived since it was last measured afresh."""
        self._rivals: dict[str, Claim] = {}
        """By source_sha256: the strongest other programs."""
        self._seen: set[str] = set()
        """Sources of all correct programs told: a program challenges once, whichever island has it."""
        self._identity: tuple[str, str] | None = None
        """Judge and device of the newest figure."""
        self._silent_for: tuple[str, str] | None = None
        """Judge and device that gave no verdict on a holder whose figure is by another one: not asked a second time."""

    def tell(self, evaluated: Evaluated, told: int) -> None:
        """Learns a new candidate; `told` counts the candidates told before it."""
        evaluation = evaluated.evaluation
        is_new = evaluation.source_sha256 not in self._seen and DUPLICATE_OF not in evaluation.features
        if not (evaluation.is_correct and is_new):
            return
        self._seen.add(evaluation.source_sha256)
        self._identity = identity_of(evaluation)
        duel = evaluation.features.get(DUEL)
        claim = Claim(evaluated, (evaluation,) if duel == FOUGHT else (), int(duel is not None))
        if self.holder is None:
            self.holder = Claim(evaluated)
        elif duel == UNDECIDED:
            self._remember(claim)
        else:
            self._challenge(claim, told)

    def retell(self, evaluated: Evaluated, told: int) -> Evaluated:
        """Learns a fresh measurement of a candidate told before; returns it with the estimate that counts now."""
        evaluation = evaluated.evaluation
        source = evaluation.source_sha256
        if self.holder is not None and self.holder.evaluation.source_sha256 == source:
            return self._defend(self.holder, evaluated, told)
        claim = self._rivals.pop(source, None) or Claim(evaluated)
        if evaluation.verdict in NO_WORD:
            claim = dataclasses.replace(claim, tries=claim.tries + 1)
            self._remember(claim)
            return claim.evaluated
        if not evaluation.is_correct:
            return evaluated
        self._identity = identity_of(evaluation)
        claim = claim.measured(evaluation)
        self._challenge(claim, told)
        return claim.evaluated

    def current(self, evaluated: Evaluated) -> Evaluated:
        """The candidate with the estimate of its program that counts now: another island may have it since long."""
        source = evaluated.evaluation.source_sha256
        claims = (self.holder, self._rivals.get(source))
        known = next((claim for claim in claims if claim and claim.evaluation.source_sha256 == source), None)
        if known is None or not evaluated.evaluation.is_correct:
            return evaluated
        return dataclasses.replace(evaluated, evaluation=known.evaluation)

    def is_worth_a_duel(self, evaluation: Evaluation) -> bool:
        """Whether a first measurement lies above the holder's: it must be repeated before it is told."""
        if self.holder is None or not evaluation.is_correct or evaluation.source_sha256 in self._seen:
            return False
        return gain_over(evaluation, self.holder.evaluation).is_notable

    def overlooked_below(self) -> float:
        """New correct candidates of a lower speedup change neither who holds the place nor who may inherit it.

        They are slower than the holder and than every rival, whose number is full; 0 while none is overlooked.
        """
        if self.holder is None or len(self._rivals) < RIVALS:
            return 0.0
        claims = (self.holder, *self._rivals.values())
        return ROUNDING * math.exp(min(fitness(claim.evaluation) for claim in claims))

    def wanted(self) -> Wanted | None:
        """The fresh measurement that is wanted next, if any."""
        if self.holder is None or not self.reduel_after:
            return None
        defences = self.holder.tries
        if self._is_stale and self._silent_for != self._identity:
            return Wanted(self.holder.evaluated, "holder", "its figure is by another judge or from another device")
        if self.falls and not defences:
            return Wanted(
                self.holder.evaluated, "holder", "it took its place with this figure, which may have been luck"
            )
        if self.challenges >= self.reduel_after * (defences + 1):
            return Wanted(self.holder.evaluated, "holder", f"it survived {self.challenges} challenges")
        return self._rematch(self.holder)

    def _rematch(self, holder: Claim) -> Wanted | None:
        """The strongest rival against the holder once more; the one of both that is known less well."""
        if not self._rivals:
            return None
        rival = max(self._rivals.values(), key=lambda claim: fitness(claim.evaluation))  # of equals the first told
        gain = gain_over(rival.evaluation, holder.evaluation)
        allowed = max(BOUTS, holder.tries + 1) if gain.is_promising else holder.tries + 1
        if not gain.is_notable:
            return None
        wide = 1.0 if gain.is_promising else WIDE
        is_wider = error_of(holder.evaluation) > wide * error_of(rival.evaluation)
        if is_wider and rival.tries > holder.tries:
            return Wanted(
                holder.evaluated, "holder", f"a rival's {gain} is in doubt, and its own interval is the wider"
            )
        if rival.tries >= allowed:
            return None
        return Wanted(rival.evaluated, "rival", f"its {gain} over the elite is in doubt")

    @property
    def _is_stale(self) -> bool:
        return self.holder is not None and identity_of(self.holder.evaluation) != self._identity

    def _challenge(self, claim: Claim, told: int) -> None:
        holder = self.holder
        assert holder is not None
        gain = gain_over(claim.evaluation, holder.evaluation)
        is_comparable = identity_of(claim.evaluation) == identity_of(holder.evaluation)
        if is_comparable and gain.is_clear:
            self._crown(claim, told, _lost(claim, gain))
            return
        self.challenges += int(claim.tries > 0)
        self._remember(claim)

    def _defend(self, holder: Claim, evaluated: Evaluated, told: int) -> Evaluated:
        evaluation = evaluated.evaluation
        self.challenges = 0
        if evaluation.verdict in NO_WORD:
            self._silent_for = self._identity
            self.holder = dataclasses.replace(holder, tries=holder.tries + 1)
            return holder.evaluated
        if evaluation.is_correct:
            self._identity = identity_of(evaluation)
            self.holder = holder.measured(evaluation)
            return self.holder.evaluated
        self._depose(f"measured afresh it was {evaluation.verdict}: {evaluation.reason}", told)
        return evaluated

    def _crown(self, claim: Claim, told: int, reason: str) -> None:
        """The holder falls and becomes a rival; the new one starts with its duel's estimate and no re-duel."""
        fallen = self.holder
        assert fallen is not None
        self.holder, self.challenges = Claim(claim.evaluated), 0
        self._rivals.pop(claim.evaluation.source_sha256, None)
        self._remember(fallen)
        self.falls.append(Fall(told, fallen.evaluated.candidate.id, claim.evaluated.candidate.id, reason))

    def _depose(self, reason: str, told: int) -> None:
        """The holder is no longer correct: the strongest rival follows, and its own re-duel is due at once."""
        fallen = self.holder
        assert fallen is not None
        heir = max(self._rivals.values(), key=_proven, default=None)
        self.holder, self.challenges = heir and Claim(heir.evaluated), self.reduel_after
        if heir is not None:
            del self._rivals[heir.evaluation.source_sha256]
        self.falls.append(
            Fall(told, fallen.evaluated.candidate.id, heir.evaluated.candidate.id if heir else "", reason)
        )

    def _remember(self, claim: Claim) -> None:
        self._rivals[claim.evaluation.source_sha256] = claim
        if len(self._rivals) > RIVALS:
            weakest = min(self._rivals.values(), key=lambda one: fitness(one.evaluation))
            del self._rivals[weakest.evaluation.source_sha256]

    def digest(self) -> list[object]:
        """The whole state as JSON values."""
        rivals = [_state(claim) for claim in self._rivals.values()]
        falls = [[fall.after, fall.candidate_id, fall.by, fall.reason] for fall in self.falls]
        judges = [self._identity, self._silent_for]
        return [self.holder and _state(self.holder), self.challenges, rivals, falls, judges, len(self._seen)]


def _proven(claim: Claim) -> tuple[bool, float]:
    """Programs with a fresh measurement before those without, then the highest lower end."""
    return bool(claim.fresh), fitness(claim.evaluation) - error_of(claim.evaluation)


def _lost(winner: Claim, gain: Gain) -> str:
    kind = f"over {len(winner.fresh)} duels" if len(winner.fresh) > 1 else "in a duel" if winner.fresh else "once told"
    return f"{winner.evaluated.candidate.id} was faster {kind}: {gain}"


def _state(claim: Claim) -> list[object]:
    known = claim.evaluation
    speedup = math.nan if known.speedup is None else known.speedup
    return [claim.evaluated.candidate.id, speedup, known.speedup_ci, len(claim.fresh), claim.tries]
