"""Each service's specification: what it is called with, what it may see, and that nothing leaves loopback."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.manifest import Manifest
from harness.probes import Fatal, Pending, Ready
from harness.services import engine, etcd, frontend, sidecar, trainer
from harness.services.context import ServiceContext, component_name
from harness.services.spec import ServiceSpec
from tests.harness import fakes

PAYLOAD = Path(engine.__file__).parents[1] / "payload"
PORTS = {
    "etcd": 20001,
    "etcd-peer": 20002,
    "frontend": 20003,
    "discovery": 20004,
    "rendezvous": 20005,
    "engine-0": 20010,
    "engine-0-grpc": 20011,
    "sidecar-0": 20012,
    "engine-1": 20020,
    "engine-1-grpc": 20021,
    "sidecar-1": 20022,
}
SPECS: dict[str, Callable[[ServiceContext], ServiceSpec]] = {
    "etcd": etcd.spec,
    "engine-0": lambda context: engine.spec(context, 0),
    "engine-1": lambda context: engine.spec(context, 1),
    "frontend": frontend.spec,
    "sidecar-1": lambda context: sidecar.spec(context, 1),
}


def make(root: Path, **changes: Any) -> ServiceContext:
    return fakes.context(root, ports=PORTS, **{"tensor_parallel": (1, 1), **changes})


def value(spec: ServiceSpec, option: str) -> str:
    return spec.argv[spec.argv.index(option) + 1]


@pytest.mark.parametrize("name", SPECS)
class TestEveryService:
    def test_it_is_named_and_logged_for_itself(self, tmp_path: Path, name: str) -> None:
        spec = SPECS[name](make(tmp_path))
        assert spec.name == name
        assert spec.log == tmp_path / "run" / "logs" / f"{name}.log"

    def test_it_runs_a_program_of_the_environment_in_the_scratch_folder(self, tmp_path: Path, name: str) -> None:
        spec = SPECS[name](make(tmp_path))
        assert Path(spec.argv[0]).parent == tmp_path / ".venv-cpu" / "bin"
        assert spec.cwd == tmp_path / "tmp"

    def test_the_callers_variables_do_not_reach_it(self, tmp_path: Path, name: str) -> None:
        env = SPECS[name](make(tmp_path)).env
        assert "HTTP_PROXY" not in env
        assert env.get("DYN_SYSTEM_PORT") != "x"

    def test_every_address_is_on_loopback(self, tmp_path: Path, name: str) -> None:
        spec = SPECS[name](make(tmp_path))
        text = " ".join([*spec.argv, *spec.env.values()])
        assert "0.0.0.0" not in text
        assert "127.0.0.1" in text

    def test_it_has_probes_and_only_its_own_ports(self, tmp_path: Path, name: str) -> None:
        spec = SPECS[name](make(tmp_path))
        assert spec.probes
        assert spec.ports
        assert all(PORTS[port] == number for port, number in spec.ports.items())

    def test_it_is_a_pure_function(self, tmp_path: Path, name: str) -> None:
        context = make(tmp_path)
        first, second = SPECS[name](context), SPECS[name](context)
        assert (first.argv, first.env, first.ports) == (second.argv, second.env, second.ports)


def test_no_two_services_share_a_port(tmp_path: Path) -> None:
    used = [port for make_spec in SPECS.values() for port in make_spec(make(tmp_path)).ports.values()]
    assert len(used) == len(set(used))


class TestEtcd:
    def test_all_peer_options_name_the_chosen_port(self, tmp_path: Path) -> None:
        spec = etcd.spec(make(tmp_path))
        peer = "http://127.0.0.1:20002"
        assert value(spec, "--listen-peer-urls") == peer
        assert value(spec, "--initial-advertise-peer-urls") == peer
        assert value(spec, "--initial-cluster") == f"default={peer}"

    @pytest.mark.parametrize(
        ("document", "kind"),
        [
            ({"health": "true", "reason": ""}, Ready),
            ({"health": "false", "reason": "RAFT NO LEADER"}, Pending),
            ({"health": True}, Pending),
            ({}, Fatal),
            ([], Fatal),
        ],
    )
    def test_health_is_the_string_true(self, document: object, kind: type) -> None:
        assert isinstance(etcd.judge_health(document), kind)


class TestEngine:
    def test_front_end_options_stand_before_the_dashes_and_engine_options_after(self, tmp_path: Path) -> None:
        argv = engine.spec(make(tmp_path), 0).argv
        dashes = argv.index("--")
        before, after = argv[:dashes], argv[dashes + 1 :]
        assert {"--served-model-name", "--host", "--port", "--grpc-port", "--enable-scale-out", "--python"} <= set(
            before
        )
        assert {"--dtype", "--max-model-len", "--enforce-eager", "--weight-transfer-config"} <= set(after)
        assert after[after.index("--worker-extension-cls") + 1] == "smokestack_payload.worker.ContentWorker"

    def test_the_refit_backend_is_the_manifests(self, tmp_path: Path) -> None:
        config = json.loads(value(engine.spec(make(tmp_path), 0), "--weight-transfer-config"))
        assert config == {"backend": "gloo"}

    def test_a_refit_beside_the_weight_routes_needs_the_extension_that_receives_and_no_transfer_engine(
        self, tmp_path: Path
    ) -> None:
        argv = engine.spec(make(tmp_path, refit="collective-rpc"), 0).argv
        assert argv[argv.index("--worker-extension-cls") + 1] == "smokestack_payload.refit.worker.RefitWorker"
        assert "--weight-transfer-config" not in argv

    def test_the_admin_routes_are_on_and_only_our_plugin_is_loaded(self, tmp_path: Path) -> None:
        env = engine.spec(make(tmp_path), 0).env
        assert env["VLLM_SERVER_DEV_MODE"] == "1"
        assert env["VLLM_PLUGINS"] == engine.PLUGIN

    def test_our_plugin_is_called_what_the_payload_calls_it(self) -> None:
        project = tomllib.loads((PAYLOAD / "pyproject.toml").read_text())["project"]
        assert list(project["entry-points"]["vllm.general_plugins"]) == [engine.PLUGIN]

    def test_one_rank_keeps_vllms_own_thread_binding(self, tmp_path: Path) -> None:
        spec = engine.spec(make(tmp_path, tensor_parallel=(1,)), 0)
        assert "OMP_NUM_THREADS" not in spec.env
        assert "--tensor-parallel-size" not in spec.argv

    @pytest.mark.parametrize("sizes", [(2,), (1, 1), (2, 1)])
    def test_several_ranks_share_the_cores(self, tmp_path: Path, sizes: tuple[int, ...]) -> None:
        env = engine.spec(make(tmp_path, tensor_parallel=sizes), 0).env
        assert (env["VLLM_CPU_OMP_THREADS_BIND"], env["OMP_NUM_THREADS"]) == ("nobind", "1")

    def test_tensor_parallelism_is_the_engines_option(self, tmp_path: Path) -> None:
        context = make(tmp_path, tensor_parallel=(2, 1))
        argv = engine.spec(context, 0).argv
        assert argv.index("--tensor-parallel-size") > argv.index("--")
        assert argv[argv.index("--tensor-parallel-size") + 1] == "2"
        assert "--tensor-parallel-size" not in engine.spec(context, 1).argv

    def test_a_model_folder_is_required(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="model folder"):
            engine.spec(make(tmp_path, model_dir=None), 0)

    @pytest.mark.parametrize(
        ("document", "kind"),
        [
            ({"data": [{"id": "other"}, {"id": "tiny"}]}, Ready),
            ({"data": [{"id": "other"}]}, Pending),
            ({"data": []}, Pending),
            ({"models": []}, Fatal),
            ("tiny", Fatal),
        ],
    )
    def test_the_served_name_must_be_listed(self, document: object, kind: type) -> None:
        assert isinstance(engine.judge_published(document, "tiny"), kind)


class TestDynamo:
    def test_each_of_several_engines_is_a_component_of_its_own_in_the_order_of_their_numbers(
        self, tmp_path: Path
    ) -> None:
        one = sidecar.spec(make(tmp_path, tensor_parallel=(1,)), 0)
        assert "DYN_COMPONENT" not in one.env
        named = [sidecar.spec(make(tmp_path), index).env["DYN_COMPONENT"] for index in range(2)]
        assert named == ["backend-00", "backend-01"]
        assert component_name(2) < component_name(10), "discovery sorts them as text"

    def test_frontend_and_sidecar_meet_in_the_runs_own_etcd(self, tmp_path: Path) -> None:
        context = make(tmp_path)
        for spec in (frontend.spec(context), sidecar.spec(context, 0)):
            assert spec.env["ETCD_ENDPOINTS"] == "http://127.0.0.1:20001"
            assert value(spec, "--namespace") == spec.env["DYN_NAMESPACE"] == "dynamo"

    def test_every_plane_has_a_loopback_host(self, tmp_path: Path) -> None:
        env = sidecar.spec(make(tmp_path), 0).env
        hosts = [name for name in env if name.startswith("DYN_") and name.endswith("_HOST")]
        assert len(hosts) == 4
        assert {env[name] for name in hosts} == {"127.0.0.1"}

    def test_the_event_plane_binds_no_port(self, tmp_path: Path) -> None:
        broker = sidecar.spec(make(tmp_path), 0).env["DYN_ZMQ_BROKER_URL"]
        assert all(part.partition("=")[2].startswith(f"ipc://{tmp_path}/tmp/") for part in broker.split(","))

    def test_the_frontend_serves_discovery_and_token_generation(self, tmp_path: Path) -> None:
        env = frontend.spec(make(tmp_path)).env
        assert env["DYN_RL_PORT"] == "20004"
        assert env["DYN_VLLM_ENABLE_INFERENCE_V1_GENERATE"] == "true"

    def test_each_sidecar_has_its_own_engine_and_port(self, tmp_path: Path) -> None:
        spec = sidecar.spec(make(tmp_path), 1)
        assert value(spec, "--grpc-endpoint") == "127.0.0.1:20021"
        assert value(spec, "--vllm-http-endpoint") == "http://127.0.0.1:20020"
        assert spec.env["DYN_SYSTEM_PORT"] == "20022"

    def test_adapters_are_offered_only_where_they_were_asked_for(self, tmp_path: Path) -> None:
        plain, asked = make(tmp_path), make(tmp_path, lora=True)
        assert "--enable-lora" not in engine.spec(plain, 0).argv
        assert not any("LORA" in name for spec in (engine, sidecar) for name in spec.spec(plain, 0).env)
        argv, env = engine.spec(asked, 0).argv, engine.spec(asked, 0).env
        assert argv.index("--enable-lora") > argv.index("--")
        assert env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
        assert env["VLLM_RUNTIME_LORA_ALLOWED_PATH_PREFIXES"] == str(tmp_path / "tmp"), "no other folder will do"
        assert sidecar.spec(asked, 0).env["DYN_LORA_ENABLED"] == "true"

    def test_an_engine_of_which_nothing_is_known_of_adapters_is_not_told_of_any(self, tmp_path: Path) -> None:
        asked = make(tmp_path, dialect="native-sidecar", lora=True)
        assert "--enable-lora" not in engine.spec(asked, 0).argv
        assert not any("LORA" in name for spec in (engine, sidecar) for name in spec.spec(asked, 0).env)

    def test_a_sidecar_does_not_linger(self, tmp_path: Path) -> None:
        assert sidecar.spec(make(tmp_path), 0).env["DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"] == "0"

    def test_an_unknown_dialect_is_refused(self, tmp_path: Path) -> None:
        known = make(tmp_path)
        manifest = Manifest.model_validate(fakes.manifest_fields(dialect="dynamo-9"))
        with pytest.raises(UsageError, match="dynamo-9"):
            sidecar.spec(ServiceContext(known.config, manifest, known.caller), 0)


def test_the_trainer_inherits_its_two_pipes(tmp_path: Path) -> None:
    spec = trainer.spec(make(tmp_path), config_file=tmp_path / "trainer.json", events_fd=5, commands_fd=6)
    assert spec.pass_fds == (5, 6)
    assert (value(spec, "--events-fd"), value(spec, "--commands-fd")) == ("5", "6")
