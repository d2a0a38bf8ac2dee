"""etcd: where the frontend and the sidecars find each other. One member, for one run."""

from __future__ import annotations

from harness.plaintext import printable
from harness.probes import Fatal, JsonProbe, Outcome, Pending, Ready
from harness.services.context import ETCD, ETCD_PEER_PORT, ETCD_PORT, ServiceContext
from harness.services.spec import ServiceSpec


def spec(context: ServiceContext) -> ServiceSpec:
    """All three peer options name the chosen port: with a default left in one of them, etcd looks for itself elsewhere.

    The data lies in the run's scratch folder and dies with it, so nothing is flushed to the disk.
    """
    client, peer = context.url(ETCD_PORT), context.url(ETCD_PEER_PORT)
    return ServiceSpec(
        name=ETCD,
        argv=(
            str(context.config.environment / "bin" / "etcd"),
            *("--data-dir", str(context.config.tmp_dir / "etcd")),
            *("--listen-client-urls", client),
            *("--advertise-client-urls", client),
            *("--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
            "--unsafe-no-fsync",
        ),
        env=context.environment({}),
        cwd=context.config.tmp_dir,
        log=context.log(ETCD),
        probes=(JsonProbe("etcd GET /health", f"{client}/health", judge_health),),
        ports={name: context.config.ports[name] for name in (ETCD_PORT, ETCD_PEER_PORT)},
        stop_grace_s=context.config.deadlines.stop_grace_s,
    )


def judge_health(document: object) -> Outcome:
    """etcd says `{"health": "true"}`, a string, once it has a leader."""
    if not isinstance(document, dict) or "health" not in document:
        return Fatal("this is not etcd's health document")
    if document["health"] != "true":
        reason = printable(str(document.get("reason") or "no reason given"))
        return Pending(f"health is {printable(repr(document['health']), 80)}: {reason}")
    return Ready()
