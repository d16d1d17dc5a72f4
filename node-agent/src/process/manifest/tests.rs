//! Tests of manifests: which are read, and which are refused.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn pod(spec: Value) -> Value {
    json!({ "metadata": { "name": "web" }, "spec": spec })
}

/// A pod of one container `c` that sleeps, with these additional fields.
fn with(fields: Value) -> Value {
    let mut container = json!({ "name": "c", "image": "busybox", "command": ["sleep", "1"] });
    for (name, value) in fields.as_object().unwrap() {
        container[name] = value.clone();
    }
    pod(json!({ "containers": [container] }))
}

fn with_spec(fields: Value) -> Value {
    let mut pod = with(json!({}));
    for (name, value) in fields.as_object().unwrap() {
        pod["spec"][name] = value.clone();
    }
    pod
}

fn read(manifest: &Value) -> Result<PodPlan, Unsupported> {
    PodPlan::read(manifest.to_string().as_bytes(), true)
}

#[test]
fn a_manifest_is_read_as_kubernetes_would() {
    let plan = read(&pod(json!({
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 5,
        "activeDeadlineSeconds": 60,
        "hostNetwork": true,
        "securityContext": { "runAsUser": 7, "runAsGroup": 8, "sysctls": [] },
        "initContainers": [{ "name": "first", "command": ["true"] }],
        "containers": [{
            "name": "main",
            "command": ["sh", "-c", "echo $(GREETING) $$(GREETING)"],
            "args": ["$(PATH)", "$(UNSET)"],
            "env": [
                { "name": "WHO", "value": "world" },
                { "name": "GREETING", "value": "hello $(WHO)" },
                { "name": "PATH", "value": "/bin" },
                { "name": "EMPTY" },
            ],
            "workingDir": "/tmp",
            "resources": { "limits": { "cpu": "1500m", "memory": "64Mi", "example.com/gpu": "1" } },
            "securityContext": { "runAsUser": 9, "privileged": false },
            "livenessProbe": { "exec": { "command": ["true"] } },
        }],
    })))
    .unwrap();
    assert_eq!((plan.inits, plan.policy), (1, RestartPolicy::OnFailure));
    assert_eq!((plan.grace.as_secs(), plan.active_deadline.unwrap().as_secs()), (5, 60));
    assert_eq!(plan.ignored, ["spec.containers[0].livenessProbe"]);
    let [first, main] = &plan.containers[..] else { panic!("{plan:?}") };
    assert_eq!((&*first.name, &*first.program, &*first.dir, first.user), ("first", "true", "/", Some(7)));
    assert_eq!((&*main.program, &*main.dir), ("sh", "/tmp"));
    assert_eq!(main.args, ["-c", "echo hello world $(GREETING)", "/bin", "$(UNSET)"]);
    let env: Vec<_> = main.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["HOSTNAME=web", "WHO=world", "GREETING=hello world", "PATH=/bin", "EMPTY="]);
    assert_eq!((main.user, main.group), (Some(9), Some(8)));
    assert_eq!(main.limits, Limits { cpu_millis: Some(1500), memory_bytes: Some(64 << 20) });
}

#[test]
fn an_unsupported_field_is_refused_by_name() {
    let empty = json!({ "a": "b" });
    let table = [
        (with(json!({ "command": null })), "spec.containers[0].command"),
        (with(json!({ "command": [] })), "spec.containers[0].command"),
        (with(json!({ "command": ["$(NOTHING)x", 7] })), "spec.containers[0].command[1]"),
        (with(json!({ "command": ["a\u{0}b"] })), "spec.containers[0].command[0]"),
        (with(json!({ "args": "text" })), "spec.containers[0].args"),
        (with(json!({ "name": "../etc" })), "spec.containers[0].name"),
        (with(json!({ "name": "-a" })), "spec.containers[0].name"),
        (with(json!({ "name": null })), "spec.containers[0].name"),
        (with(json!({ "env": [{ "name": "A", "valueFrom": empty }] })), "spec.containers[0].env[0].valueFrom"),
        (with(json!({ "env": [{ "name": "A=B" }] })), "spec.containers[0].env[0].name"),
        (with(json!({ "env": [{ "name": "A", "value": 7 }] })), "spec.containers[0].env[0].value"),
        (with(json!({ "envFrom": [empty] })), "spec.containers[0].envFrom"),
        (with(json!({ "volumeMounts": [empty] })), "spec.containers[0].volumeMounts"),
        (with(json!({ "lifecycle": empty })), "spec.containers[0].lifecycle"),
        (with(json!({ "tty": true })), "spec.containers[0].tty"),
        (with(json!({ "stdin": true })), "spec.containers[0].stdin"),
        (with(json!({ "restartPolicy": "Always" })), "spec.containers[0].restartPolicy"),
        (with(json!({ "workingDir": "tmp" })), "spec.containers[0].workingDir"),
        (with(json!({ "resources": { "limits": { "cpu": "many" } } })), "spec.containers[0].resources.limits.cpu"),
        (with(json!({ "resources": { "limits": { "memory": -1 } } })), "spec.containers[0].resources.limits.memory"),
        (
            with(json!({ "securityContext": { "readOnlyRootFilesystem": true } })),
            "spec.containers[0].securityContext.readOnlyRootFilesystem",
        ),
        (
            with(json!({ "securityContext": { "runAsNonRoot": true } })),
            "spec.containers[0].securityContext.runAsNonRoot",
        ),
        (with(json!({ "securityContext": { "runAsUser": -1 } })), "spec.containers[0].securityContext.runAsUser"),
        (with_spec(json!({ "securityContext": { "fsGroup": 1 } })), "spec.securityContext.fsGroup"),
        (with_spec(json!({ "volumes": [empty] })), "spec.volumes"),
        (with_spec(json!({ "runtimeClassName": "gvisor" })), "spec.runtimeClassName"),
        (with_spec(json!({ "restartPolicy": "Sometimes" })), "spec.restartPolicy"),
        (with_spec(json!({ "os": { "name": "windows" } })), "spec.os.name"),
        (with_spec(json!({ "initContainers": [{ "name": "c", "command": ["true"] }] })), "spec.containers"),
        (with_spec(json!({ "containers": [] })), "spec.containers"),
        (with_spec(json!({ "containers": vec![empty.clone(); CONTAINERS_MAX + 1] })), "spec.containers"),
        (with_spec(json!({ "activeDeadlineSeconds": "soon" })), "spec.activeDeadlineSeconds"),
        (json!([]), "spec.containers"),
    ];
    for (manifest, field) in table {
        let refused = read(&manifest).expect_err(field);
        assert_eq!(refused.field, field, "{refused}");
    }
    assert_eq!(PodPlan::read(b"{", true).unwrap_err().field, "manifest");
}

#[test]
fn a_pod_that_must_not_run_as_root_runs_under_an_agent_without_root() {
    let manifest = with_spec(json!({ "securityContext": { "runAsNonRoot": true } })).to_string();
    assert!(PodPlan::read(manifest.as_bytes(), true).is_err());
    assert!(PodPlan::read(manifest.as_bytes(), false).is_ok());
}

/// Any JSON, with field names that mean something.
fn garbage() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let names = prop_oneof![
        Just("name"),
        Just("command"),
        Just("env"),
        Just("value"),
        Just("resources"),
        Just("limits"),
        Just("cpu"),
        Just("securityContext"),
        Just("restartPolicy"),
        Just("workingDir"),
    ];
    leaf.prop_recursive(4, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn garbage_is_refused_or_read_but_never_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        spec in garbage(),
        container in garbage(),
    ) {
        let _ = PodPlan::read(&bytes, true);
        let _ = read(&pod(spec));
        let _ = read(&pod(json!({ "containers": [container] })));
    }
}
