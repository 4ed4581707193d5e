"""The views of the history database, with their columns. `docs/history.md` and DuckDB's own comments come from here."""

from __future__ import annotations

import msgspec


class View(msgspec.Struct, frozen=True):
    """A view: what it answers, its columns with their meaning, and its query."""

    name: str
    comment: str
    columns: tuple[tuple[str, str], ...]
    query: str


VIEWS = (
    View(
        "leaderboard",
        "The best candidate of every run, ranked within problem, device and kind of timing.",
        (
            ("place", "Rank among the runs of the same problem, device and kind of timing, from 1"),
            ("problem", "Name of the problem"),
            ("device", "Name of the device"),
            ("target", "Architecture that kernels were compiled for"),
            ("timing", "measured or modelled"),
            ("run_id", "The run"),
            ("candidate_id", "Its best candidate"),
            ("move", "The last change that led to it"),
            ("strategy", "Strategy of that change"),
            ("generator", "What wrote it"),
            ("model", "Model of the llm generator, empty for others"),
            ("speed_verdict", "The best candidate's speed verdict"),
            ("ratio", "Measured: baseline time / its time"),
            ("low", "Measured: lower end of the ratio's interval"),
            ("high", "Measured: upper end of the ratio's interval"),
            ("estimate", "Modelled: ratio to the baseline; not a speedup"),
            ("pulls", "Pulls of the run"),
            ("cost_usd", "US dollars of the run"),
            ("started_at", "When the run began (UTC)"),
        ),
        """
        select
            rank() over (
                partition by problem_digest, device, target, timing
                order by best_ratio desc nulls last, best_estimate desc nulls last
            ) as place,
            problem, device, target, timing, run_id, best_id as candidate_id, best_move as move,
            best_strategy as strategy, generator, model, best_verdict as speed_verdict, best_ratio as ratio,
            best_low as low, best_high as high, best_estimate as estimate, pulls, cost_usd, started_at
        from runs where best_id is not null
        """,
    ),
    View(
        "arm_stats",
        "Pulls of every arm of every run, under the clusters at the time of each choice.",
        (
            ("run_id", "The run"),
            ("problem", "Name of the problem"),
            ("policy", "Policy of the bandit"),
            ("cluster", "Cluster of the arm when it was chosen"),
            ("strategy", "Strategy of the arm"),
            ("pulls", "Pulls that the bandit saw"),
            ("mean_reward", "Mean reward of those"),
            ("best_reward", "Highest reward"),
            ("rewarded", "Pulls with a reward above 0"),
            ("dropped", "Pulls that the bandit does not see"),
            ("forced", "Pulls that a person forced"),
        ),
        """
        select
            p.run_id, r.problem, r.policy, p.cluster, p.strategy,
            count(*) filter (p.seen) as pulls,
            avg(p.reward) filter (p.seen) as mean_reward,
            max(p.reward) filter (p.seen) as best_reward,
            count(*) filter (p.seen and p.reward > 0) as rewarded,
            count(*) filter (p.ended and not p.seen) as dropped,
            count(*) filter (p.forced) as forced
        from pulls p join runs r on r.run_id = p.run_id
        group by all
        """,
    ),
    View(
        "lineage",
        "How every candidate came about: its ancestors from the baseline, and the moves between them.",
        (
            ("run_id", "The run"),
            ("candidate_id", "The candidate"),
            ("depth", "Changes between the baseline and it"),
            ("ancestors", "Candidates from the baseline to it"),
            ("moves", "The changes on that way"),
            ("status", "One word for how it ended"),
            ("ratio", "Measured: baseline time / its time"),
            ("estimate", "Modelled: ratio to the baseline; not a speedup"),
        ),
        """
        with recursive walk as (
            select run_id, candidate_id, 0 as depth, [candidate_id] as ancestors, []::varchar[] as moves
            from candidates where parent_id is null
            union all
            select c.run_id, c.candidate_id, w.depth + 1, list_append(w.ancestors, c.candidate_id),
                list_append(w.moves, c.move)
            from candidates c join walk w on w.run_id = c.run_id and w.candidate_id = c.parent_id
        )
        select w.run_id, w.candidate_id, w.depth, w.ancestors, w.moves, c.status, c.ratio, c.estimate
        from walk w join candidates c on c.run_id = w.run_id and c.candidate_id = w.candidate_id
        """,
    ),
    View(
        "model_cost",
        "What every model was asked in every run and under every arm, what that cost, and the rewards of the pulls.",
        (
            ("run_id", "The run"),
            ("model", "The model, PROVIDER/NAME"),
            ("cluster", "Cluster of the arm it was asked for"),
            ("strategy", "Strategy of the arm"),
            ("requests", "Requests that ended"),
            ("failed", "Those without a reply"),
            ("pulls", "Pulls it was asked for"),
            ("tokens", "All tokens charged for"),
            ("cost_usd", "US dollars; NULL where no price is known"),
            ("reward", "Sum of the rewards of its pulls"),
        ),
        """
        select
            q.run_id, q.model, p.cluster, p.strategy,
            count(*) as requests,
            count(*) filter (q.outcome <> 'reply') as failed,
            count(distinct q.pull) as pulls,
            sum(q.tokens) as tokens,
            sum(q.cost_usd) as cost_usd,
            sum(p.reward) filter (q.call = 1) as reward
        from requests q left join pulls p on p.run_id = q.run_id and p.pull = q.pull
        group by all
        """,
    ),
    View(
        "cost",
        "What every run cost and what it got for it.",
        (
            ("run_id", "The run"),
            ("problem", "Name of the problem"),
            ("generator", "What wrote the candidates"),
            ("model", "Model of the llm generator"),
            ("pulls", "Pulls that ended"),
            ("candidates", "Candidates, the baseline included"),
            ("correct", "Correct ones, the baseline included"),
            ("cost_usd", "US dollars spent on models"),
            ("tokens", "Tokens of models"),
            ("usd_per_correct", "US dollars per correct candidate besides the baseline"),
            ("tokens_per_correct", "Tokens per correct candidate besides the baseline"),
            ("seconds_per_pull", "Seconds of the run's clock per pull"),
            ("best_ratio", "Measured: baseline time / best time"),
            ("best_estimate", "Modelled: the same ratio; not a speedup"),
        ),
        """
        select
            run_id, problem, generator, model, pulls, candidates, correct, cost_usd, tokens,
            cost_usd / nullif(correct - 1, 0) as usd_per_correct,
            tokens / nullif(correct - 1, 0) as tokens_per_correct,
            elapsed_s / nullif(pulls, 0) as seconds_per_pull,
            best_ratio, best_estimate
        from runs
        """,
    ),
    View(
        "gpu_trace",
        "GPU counters over each run, in time, with the pull that was played.",
        (
            ("run_id", "The run"),
            ("problem", "Name of the problem"),
            ("device", "Lane or index of the GPU"),
            ("uuid", "UUID of the GPU"),
            ("counter", "Name of the counter, its unit in the name"),
            ("started_at", "Start of the window (UTC)"),
            ("since_start_s", "Seconds from the run's first event to the window"),
            ("pull", "Pull in flight when the window began; NULL between pulls"),
            ("mean", "Mean of the samples"),
            ("minimum", "Smallest sample"),
            ("maximum", "Largest sample"),
            ("samples", "Samples in the window"),
        ),
        """
        select
            g.run_id, r.problem, g.device, g.uuid, g.counter, g.started_at,
            epoch(g.started_at - r.started_at) as since_start_s,
            (
                select max(p.pull) from pulls p
                where p.run_id = g.run_id and p.started_at <= g.started_at
                    and (p.ended_at is null or p.ended_at > g.started_at)
            ) as pull,
            g.mean, g.minimum, g.maximum, g.samples
        from gpu g join runs r on r.run_id = g.run_id
        order by g.run_id, g.uuid, g.counter, g.started_at
        """,
    ),
)
