"""The tables of the history database, column by column. `docs/history.md` and DuckDB's own comments come from here.

A number that was measured and one that was modelled never share a column: the modelled one has `estimate` in its name.
"""

from __future__ import annotations

import msgspec


class Column(msgspec.Struct, frozen=True):
    """A column: its name, its DuckDB type, and what it means (with its unit)."""

    name: str
    type: str
    comment: str


class Table(msgspec.Struct, frozen=True):
    """A table: `key` are the columns that tell its rows apart.

    DuckDB holds to the key where rows are replaced by it (`is_primary`). Elsewhere a run's rows are replaced together, and the
    index would be nine tenths of the file and a tenth of the time of taking runs in.
    """

    name: str
    comment: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    is_primary: bool = False


_RUN = Column("run_id", "VARCHAR", "The run, as `kbtui runs` names it")
_AT = Column("happened_at", "TIMESTAMP", "When it happened (UTC)")
_SEQ = Column("seq", "BIGINT", "Number of the event in the run's journal")
_CANDIDATE = Column("candidate_id", "INTEGER", "The candidate; 0 is the baseline, or an empty start")
_STRATEGY = Column("strategy", "VARCHAR", "tiling, vectorization, fusion, pipeline, reordering or access_layout")

RUNS = Table(
    "runs",
    "One row per run: what it was asked, on what it ran, how it stands and its best candidate.",
    ("run_id",),
    (
        _RUN,
        Column("problem", "VARCHAR", "Name of the problem"),
        Column("problem_path", "VARCHAR", "Folder of the problem on the machine of the run"),
        Column("problem_digest", "VARCHAR", "sha256 over kernel.py and problem.py, hex"),
        Column("entry", "VARCHAR", "Function that every candidate defines"),
        Column("device", "VARCHAR", "Name of the device"),
        Column("device_kind", "VARCHAR", "cuda, or cpu (interpreted and modelled)"),
        Column("device_uuid", "VARCHAR", "UUID of the device, empty when it has none"),
        Column("devices", "VARCHAR[]", "In a run on several devices their names, such as cuda:0; else empty"),
        Column("target", "VARCHAR", "Architecture that kernels were compiled for, such as sm_90"),
        Column("timing", "VARCHAR", "measured or modelled: which kind of times the run has"),
        Column("policy", "VARCHAR", "Policy of the bandit"),
        Column("policy_parameters", "JSON", "Parameters of the policy"),
        Column("generator", "VARCHAR", "What wrote the candidates"),
        Column("model", "VARCHAR", "Model of the llm generator, empty for others"),
        Column("objective", "VARCHAR", "geomean, total or worst: how cases make one ratio"),
        Column("seed", "BIGINT", "Seed of every draw"),
        Column("iterations", "INTEGER", "Pulls allowed, as last changed"),
        Column("budget_usd", "DOUBLE", "US dollars allowed; NULL without a limit"),
        Column("parallel", "INTEGER", "Pulls in flight at most"),
        Column("host", "VARCHAR", "Machine of the run"),
        Column("user_name", "VARCHAR", "Who started the run"),
        Column("python", "VARCHAR", "Interpreter of the lanes"),
        Column("arguments", "VARCHAR[]", "Command line that started the run"),
        Column("versions", "JSON", "Versions of kbtui, Python, torch, triton, driver"),
        Column("isolation", "JSON", "What isolates candidates here"),
        Column("started_at", "TIMESTAMP", "First event (UTC)"),
        Column("last_at", "TIMESTAMP", "Last event (UTC)"),
        Column("elapsed_s", "DOUBLE", "The run's own clock at its last event, in seconds"),
        Column("status", "VARCHAR", "As its journal says: running, paused or stopped (a crashed run says running)"),
        Column(
            "stopped_by",
            "VARCHAR",
            "What ended it: iterations, budget, tokens, time, no gain, user, an error, ...; empty until it stops",
        ),
        Column("pulls", "INTEGER", "Pulls that ended; those dropped before a candidate existed do not count"),
        Column("candidates", "INTEGER", "Candidates, the baseline included"),
        Column("correct", "INTEGER", "Candidates verified correct, the baseline included"),
        Column(
            "baseline_id",
            "INTEGER",
            "What others are compared with: 0, or the first correct candidate of a run that began without a kernel",
        ),
        Column("best_id", "INTEGER", "Best candidate; NULL when there is none"),
        Column("best_move", "VARCHAR", "The last change that led to the best candidate"),
        Column("best_strategy", "VARCHAR", "Strategy of that change; NULL for the baseline and injected ones"),
        Column("best_verdict", "VARCHAR", "The best candidate's speed verdict"),
        Column("best_ratio", "DOUBLE", "Measured: baseline time / best time"),
        Column("best_low", "DOUBLE", "Measured: lower end of its interval"),
        Column("best_high", "DOUBLE", "Measured: upper end of its interval"),
        Column("best_estimate", "DOUBLE", "Modelled: the same ratio from the estimate; not a speedup"),
        Column("cost_usd", "DOUBLE", "US dollars spent on models"),
        Column("tokens", "BIGINT", "Tokens of models"),
    ),
)

CASES = Table(
    "cases",
    "The timed input cases of a run's problem.",
    ("run_id", "case_name"),
    (
        _RUN,
        Column("case_name", "VARCHAR", "Name of the case"),
        Column("fields", "JSON", "The case's own parameters (rows, cols, dtype, ...)"),
        Column("weight", "DOUBLE", "Weight in the objective"),
        Column("bytes_moved", "BIGINT", "Least bytes the case moves; 0 when the problem does not say"),
        Column("operations", "BIGINT", "Least operations of the case; 0 when the problem does not say"),
    ),
)

CANDIDATES = Table(
    "candidates",
    "One row per version of a kernel: where it came from, how far it came, its verdicts and its times over all cases.",
    ("run_id", "candidate_id"),
    (
        _RUN,
        _CANDIDATE,
        Column("parent_id", "INTEGER", "Candidate it was made from; NULL for the baseline"),
        Column("pull", "INTEGER", "Pull that made it; 0 outside a pull"),
        Column("strategy", "VARCHAR", "Strategy that made it; NULL for the baseline and injected ones"),
        Column("cluster", "INTEGER", "Cluster under the last partition; NULL when it is in none"),
        Column("generator", "VARCHAR", "What wrote it"),
        Column("model", "VARCHAR", "Model that wrote it, empty for what no model wrote"),
        Column("by_whom", "VARCHAR", "Person who injected it, else empty"),
        Column("move", "VARCHAR", "Short title of the change"),
        Column("detail", "VARCHAR", "More about the change"),
        Column("born_at", "TIMESTAMP", "When its source existed (UTC)"),
        Column("stage", "VARCHAR", "How far it came: generated, pruned, compiled, verified, timed"),
        Column("status", "VARCHAR", "One word for how it ended"),
        Column("pruned_stage", "VARCHAR", "Stage that pruned it; NULL when it was not pruned"),
        Column("pruned_reason", "VARCHAR", "Why it was pruned"),
        Column("pruned_value", "DOUBLE", "Number behind the pruning"),
        Column("pruned_limit", "DOUBLE", "Limit of that number"),
        Column("compile_ok", "BOOLEAN", "Whether it compiled; NULL when not tried"),
        Column("compile_outcome", "VARCHAR", "Verdict when it did not compile, else NULL"),
        Column("compile_reason", "VARCHAR", "The compiler's last line when it did not compile, else NULL"),
        Column("compile_s", "DOUBLE", "Seconds it took to compile"),
        Column("verdict", "VARCHAR", "correct, wrong, cheat, crash, hang, invalid or unknown; NULL when not verified"),
        Column("verdict_owner", "VARCHAR", "At fault: candidate, environment or provider"),
        Column("verdict_stage", "VARCHAR", "Stage that gave the verdict"),
        Column("verdict_reason", "VARCHAR", "Reason of the verdict"),
        Column("cases_checked", "INTEGER", "Input cases compared with the oracle"),
        Column("error", "DOUBLE", "Worst |y - ref| / (|ref| + RMS of the row)"),
        Column("error_allowed", "DOUBLE", "Limit of the error at that place"),
        Column("worst_case", "VARCHAR", "Case with the worst error"),
        Column("not_checked", "VARCHAR[]", "What could not be checked on the lane"),
        Column("verify_s", "DOUBLE", "Seconds it took to verify"),
        Column(
            "speed_verdict",
            "VARCHAR",
            "Measured: faster, slower, same, ambiguous. Modelled: not worse, worse. Or unknown",
        ),
        Column("ratio", "DOUBLE", "Measured: baseline time / its time by the run's objective"),
        Column("low", "DOUBLE", "Measured: lower end of the ratio's interval"),
        Column("high", "DOUBLE", "Measured: upper end of the ratio's interval"),
        Column("parent_ratio", "DOUBLE", "Measured: parent's time / its time"),
        Column("pairs", "INTEGER", "Measured: pairs of fresh processes behind the ratio"),
        Column("noise", "DOUBLE", "Measured: noise floor of the comparison, as a share"),
        Column("total_ms", "DOUBLE", "Measured: sum of its times over the cases, in ms; NULL unless all were timed"),
        Column("estimate", "DOUBLE", "Modelled: ratio to the baseline; not a speedup"),
        Column("parent_estimate", "DOUBLE", "Modelled: ratio to the parent; not a speedup"),
        Column(
            "total_estimate_ms", "DOUBLE", "Modelled: sum of its estimated times, in ms; NULL unless all were estimated"
        ),
        Column("suspicious", "VARCHAR[]", "What is odd about its times"),
        Column("device", "VARCHAR", "In a run on several devices, the one of its times; else empty"),
        Column("time_s", "DOUBLE", "Seconds it took to time"),
        Column("sm_percent", "DOUBLE", "Measured: SM throughput in % of peak"),
        Column("dram_percent", "DOUBLE", "Measured: DRAM throughput in % of peak"),
        Column("l2_percent", "DOUBLE", "Measured: L2 throughput in % of peak"),
        Column("sm_estimate_percent", "DOUBLE", "Modelled: SM throughput in % of peak"),
        Column("dram_estimate_percent", "DOUBLE", "Modelled: DRAM throughput in % of peak"),
        Column("l2_estimate_percent", "DOUBLE", "Modelled: L2 throughput in % of peak"),
        Column("signature_source", "VARCHAR", "Who read the signature: ncu, gpm, model or unknown"),
        Column("reward", "DOUBLE", "Reward its pull earned; NULL when it earned none"),
        Column("cost_usd", "DOUBLE", "US dollars its text cost"),
        Column("tokens", "BIGINT", "Tokens its text took"),
        Column("tags", "VARCHAR[]", "Tags a person gave"),
        Column("note", "VARCHAR", "Note a person wrote"),
        Column("path", "VARCHAR", "File it was exported to when it became best, else empty"),
        Column("source", "VARCHAR", "Its source text"),
        Column("source_digest", "VARCHAR", "sha256 of the source, hex"),
        Column("syntax_digest", "VARCHAR", "sha256 of the normalised syntax tree, hex"),
    ),
)

CASE_TIMES = Table(
    "case_times",
    "A candidate's time on each case: measured or modelled, in separate columns.",
    ("run_id", "candidate_id", "case_name"),
    (
        _RUN,
        _CANDIDATE,
        Column("case_name", "VARCHAR", "Name of the case"),
        Column("ms", "DOUBLE", "Measured: time in ms"),
        Column("low_ms", "DOUBLE", "Measured: lower end of its interval"),
        Column("high_ms", "DOUBLE", "Measured: upper end of its interval"),
        Column("called_ms", "DOUBLE", "Measured: time of the whole call, host work included"),
        Column("ratio", "DOUBLE", "Measured: baseline time / its time"),
        Column("estimate_ms", "DOUBLE", "Modelled: time in ms"),
        Column("estimate_ratio", "DOUBLE", "Modelled: ratio to the baseline; not a speedup"),
        Column("floor_ms", "DOUBLE", "Speed of light: least time the hardware allows, in ms; 0 when unknown"),
        Column("bound", "VARCHAR", "What the speed of light is bound by"),
        Column("failed", "VARCHAR", "Why the case has no time, else empty"),
    ),
)

KERNELS = Table(
    "kernels",
    "The compiled kernels of a candidate: facts read from the compiled object.",
    ("run_id", "candidate_id", "kernel"),
    (
        _RUN,
        _CANDIDATE,
        Column("kernel", "INTEGER", "Position among the candidate's kernels, from 0"),
        Column("name", "VARCHAR", "Name of the kernel"),
        Column("target", "VARCHAR", "Architecture it was compiled for"),
        Column("registers", "INTEGER", "Registers per thread"),
        Column("spill_bytes", "INTEGER", "Bytes of registers spilled to local memory, per thread"),
        Column("shared_bytes", "INTEGER", "Shared memory per block, in bytes"),
        Column("num_warps", "INTEGER", "Warps per block"),
        Column("num_stages", "INTEGER", "Pipeline stages"),
        Column("threads", "INTEGER", "Threads per block"),
        Column("occupancy_percent", "DOUBLE", "Theoretical occupancy in %"),
        Column("code_digest", "VARCHAR", "sha256 over machine code and constants"),
        Column("constants", "JSON", "Compile-time constants of the launch"),
        Column("grid", "INTEGER[]", "Blocks of the launch in x, y, z"),
        Column("launches", "INTEGER", "Launches with these constants over the timed cases"),
    ),
)

PULLS = Table(
    "pulls",
    "One row per pull: the arm, the parent, how it ended and what the bandit learned.",
    ("run_id", "pull"),
    (
        _RUN,
        Column("pull", "INTEGER", "Number of the pull, from 1"),
        Column("cluster", "INTEGER", "Cluster of the arm when it was chosen"),
        _STRATEGY,
        Column("parent_id", "INTEGER", "Candidate it started from"),
        Column("forced", "BOOLEAN", "Whether a person forced the arm"),
        Column("chosen_because", "VARCHAR", "The policy's reason"),
        Column("candidate_id", "INTEGER", "Last candidate it made; NULL when it made none"),
        Column("candidates", "INTEGER", "Candidates it made, repairs included"),
        Column("ended", "BOOLEAN", "Whether it ended"),
        Column("seen", "BOOLEAN", "Whether the bandit saw it: rewarded, not dropped"),
        Column("reward", "DOUBLE", "Reward; NULL until it ends and when dropped"),
        Column("timing", "VARCHAR", "measured or modelled: which kind of times the reward is from"),
        Column("outcome", "VARCHAR", "How it ended; dropped when the bandit does not see it"),
        Column("dropped_owner", "VARCHAR", "At fault when dropped: environment, provider; NULL otherwise"),
        Column("dropped_reason", "VARCHAR", "Why it was dropped, else NULL"),
        Column("arm_mean", "DOUBLE", "The arm's mean reward after the update"),
        Column("arm_pulls", "DOUBLE", "The arm's N after the update, the prior one included"),
        Column("started_at", "TIMESTAMP", "When the arm was chosen (UTC)"),
        Column("ended_at", "TIMESTAMP", "When it ended (UTC)"),
    ),
)

SELECTIONS = Table(
    "selections",
    "Every arm at every choice: its statistics, bonus and score, and why it was held back if it was.",
    ("run_id", "pull", "cluster", "strategy"),
    (
        _RUN,
        Column("pull", "INTEGER", "Number of the pull that was chosen"),
        Column("cluster", "INTEGER", "Cluster of the arm"),
        _STRATEGY,
        Column("chosen", "BOOLEAN", "Whether this arm was the choice"),
        Column("pulls", "DOUBLE", "The arm's N, the prior one and pulls in flight included"),
        Column("mean", "DOUBLE", "The arm's mean reward"),
        Column("bonus", "DOUBLE", "Exploration bonus"),
        Column("score", "DOUBLE", "What the policy compared"),
        Column("held", "VARCHAR", "masked, banned, no move, empty or resting; empty when eligible"),
        Column("reason", "VARCHAR", "Reason for people"),
        Column(
            "headroom_percent", "DOUBLE", "Threshold minus the resource's reading, in percent points; NULL: unknown"
        ),
        Column("share", "DOUBLE", "Probability of the choice where the policy draws; NULL where it does not"),
    ),
)

PARTITIONS = Table(
    "partitions",
    "Every clustering of the frontier: each candidate's cluster and behaviour features.",
    ("run_id", "seq", "candidate_id"),
    (
        _RUN,
        _SEQ,
        Column("pull", "INTEGER", "Pull before which it was made"),
        _CANDIDATE,
        Column("cluster", "INTEGER", "Cluster of the candidate"),
        Column("representative", "BOOLEAN", "Whether it is its cluster's representative"),
        Column("log_latency", "DOUBLE", "Measured: log(1 + ms); NULL when unknown"),
        Column("log_latency_estimate", "DOUBLE", "Modelled: log(1 + ms) of the estimate; NULL when unknown"),
        Column("registers", "DOUBLE", "Registers per thread; NULL when unknown"),
        Column("shared_kib", "DOUBLE", "Shared memory per block, in KiB; NULL when unknown"),
        Column("log2_block", "DOUBLE", "log2 of the threads of a block; NULL when unknown"),
        Column("occupancy_percent", "DOUBLE", "Theoretical occupancy in %; NULL when unknown"),
    ),
)

INTERVENTIONS = Table(
    "interventions",
    "What people did to a run: pause, resume, step, force, ban, unban, inject, pin, kill, budget, tag.",
    ("run_id", "seq"),
    (
        _RUN,
        _SEQ,
        _AT,
        Column("kind", "VARCHAR", "What was done"),
        Column("by_whom", "VARCHAR", "Who did it: user@terminal or user@script"),
        Column("strategy", "VARCHAR", "Strategy of the arm; NULL when it is not about an arm"),
        Column("cluster", "INTEGER", "Cluster of the arm; NULL: all, or not about an arm"),
        Column("candidate_id", "INTEGER", "Candidate or parent it is about; NULL when none"),
        Column("detail", "VARCHAR", "Reason, file name, tag, or new budget"),
    ),
)

NOTES = Table(
    "notes",
    "Lines of the log that no other table has: notes, refused replies, pauses by kbtui, continuations and stops.",
    ("run_id", "seq"),
    (
        _RUN,
        _SEQ,
        _AT,
        Column("level", "VARCHAR", "info, warning or error"),
        Column("source", "VARCHAR", "Who says it"),
        Column("text", "VARCHAR", "The line"),
    ),
)

REQUESTS = Table(
    "requests",
    "Requests to language models, one row when it is known how each ended. Prompts and replies are in the journal.",
    ("run_id", "seq"),
    (
        _RUN,
        _SEQ,
        _AT,
        Column("pull", "INTEGER", "Pull it was for"),
        Column("call", "INTEGER", "Its number within the pull, from 1"),
        Column("model", "VARCHAR", "The model, PROVIDER/NAME"),
        Column("asking", "VARCHAR", "write, rewrite (a reply could not be used) or repair; NULL when it failed"),
        Column("about", "INTEGER", "Candidate to mend; NULL when none"),
        Column("outcome", "VARCHAR", "reply, or the kind of failure: rate limit, dropped, cancelled, ..."),
        Column("finish", "VARCHAR", "The provider's word for why the reply ended; NULL when it failed"),
        Column("prompt_tokens", "INTEGER", "Tokens of the prompt; NULL when it failed"),
        Column("completion_tokens", "INTEGER", "Tokens of the reply, thinking included; NULL when it failed"),
        Column("cached_tokens", "INTEGER", "Those of the prompt that the provider had cached; NULL when it failed"),
        Column("tokens", "INTEGER", "All that was charged for"),
        Column("counted_by", "VARCHAR", "provider or tokenizer; NULL when it failed"),
        Column("cost_usd", "DOUBLE", "US dollars; NULL where the price is unknown"),
        Column("seconds", "DOUBLE", "From sending to the end"),
        Column("first_token_s", "DOUBLE", "From sending to the first token; NULL when it failed"),
        Column("recorded", "VARCHAR", "The reply of a recording that was replayed; empty when a model was asked"),
    ),
)

GPU = Table(
    "gpu",
    "Roll-ups of GPU counters. They are not in the journal: a rebuild keeps them when the old file can be read.",
    ("run_id", "uuid", "counter", "started_at"),
    (
        _RUN,
        Column("uuid", "VARCHAR", "UUID of the GPU"),
        Column("device", "VARCHAR", "Lane or index of the GPU"),
        Column("counter", "VARCHAR", "Name of the counter, its unit in the name (power_w, sm_clock_mhz, ...)"),
        Column("started_at", "TIMESTAMP", "Start of the window (UTC)"),
        Column("seconds", "DOUBLE", "Length of the window"),
        Column("samples", "INTEGER", "Samples in the window"),
        Column("mean", "DOUBLE", "Mean of the samples"),
        Column("minimum", "DOUBLE", "Smallest sample"),
        Column("maximum", "DOUBLE", "Largest sample"),
    ),
    is_primary=True,
)

BENCHMARKS = Table(
    "benchmarks",
    "What a method made of every kernel of a suite (`kbtui bench`); the run itself is in the other tables. Not in any "
    "journal: a rebuild keeps the rows.",
    ("benchmark", "kernel"),
    (
        Column("benchmark", "VARCHAR", "Suite, method and a digest of what they were run with"),
        Column("suite", "VARCHAR", "The suite as it was named"),
        Column("method", "VARCHAR", "The method as `--method` names it"),
        Column("kernel", "VARCHAR", "Name of the problem within the suite"),
        Column(
            "status",
            "VARCHAR",
            "done, failed, stopped, waiting (for replies), started, or not applicable (the method to the kernel)",
        ),
        Column("run_id", "VARCHAR", "The run, as `kbtui runs` names it"),
        Column("device", "VARCHAR", "Name of the device"),
        Column("timing", "VARCHAR", "measured or modelled: which kind of times the run has"),
        Column("verdict", "VARCHAR", "Of the best version against the baseline; empty where nothing beat it"),
        Column(
            "ratio", "DOUBLE", "Measured baseline time over the best's; 1 where nothing beat it; NULL when modelled"
        ),
        Column("low", "DOUBLE", "Lower end of its interval"),
        Column("high", "DOUBLE", "Upper end of its interval"),
        Column("estimate", "DOUBLE", "The same from a model; NULL when measured"),
        Column("sum_ratio", "DOUBLE", "Measured: total baseline time over total time of the best, over all cases"),
        Column("sum_estimate", "DOUBLE", "The same from a model"),
        Column("baseline_ms", "DOUBLE", "Geometric mean of the baseline's measured times (ms); NULL when modelled"),
        Column("pulls", "INTEGER", "Pulls that ended"),
        Column("candidates", "INTEGER", "Versions, the baseline included"),
        Column("correct", "INTEGER", "Correct versions beside the baseline"),
        Column("cost_usd", "DOUBLE", "US dollars"),
        Column("tokens", "BIGINT", "Tokens of models"),
        Column("seconds", "DOUBLE", "Wall time of the run"),
        Column("reason", "VARCHAR", "Why it failed, or what became of its versions where nothing got faster"),
        Column("owner", "VARCHAR", "Whose doing the failure is: candidate, environment, provider or kbtui"),
        Column("finished_at", "TIMESTAMP", "When the result came in (UTC)"),
    ),
    is_primary=True,
)

INGESTED = Table(
    "ingested",
    "How much of each journal is in this database.",
    ("run_id",),
    (
        _RUN,
        Column("seq", "BIGINT", "Last event taken in"),
        Column("journal_bytes", "BIGINT", "Size of the journal up to that event"),
    ),
    is_primary=True,
)

DERIVED: tuple[Table, ...] = (
    RUNS, CASES, CANDIDATES, CASE_TIMES, KERNELS, PULLS, SELECTIONS, PARTITIONS, INTERVENTIONS, NOTES, REQUESTS,
)  # fmt: skip
"""Tables whose rows follow from journals."""
TABLES: tuple[Table, ...] = (*DERIVED, GPU, BENCHMARKS, INGESTED)
