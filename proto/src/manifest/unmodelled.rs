//! Manifest fields that Muster does not model, put back where they were.
//!
//! They are stored as one JSON object with the structure of the manifest. In lists of objects they stand beside the
//! identity of their element, so that they find it again after the list was edited, and go when it goes.

use serde_json::{Map, Value};

/// Modelled parts that may be absent as a whole; unknown fields below an absent one must not bring it back.
const REMOVABLE: [(&str, &str); 5] = [
    ("metadata", "ownerReferences"),
    ("spec", "taints"),
    ("status", "addresses"),
    ("status", "conditions"),
    ("status", "nodeInfo"),
];

/// Merges the stored text into the manifest. Text that is no JSON object adds nothing: only [`super::node_from_json`]
/// makes it, and an object must stay readable whatever a store holds.
pub(super) fn restore(manifest: &mut Value, unmodelled: &str) {
    let Ok(mut extra) = serde_json::from_str::<Map<String, Value>>(unmodelled) else { return };
    for (section, part) in REMOVABLE {
        let present = manifest.get(section).and_then(|section| section.get(part)).is_some();
        if let Some(Value::Object(section)) = extra.get_mut(section)
            && !present
        {
            section.remove(part);
        }
    }
    merge(manifest, Value::Object(extra));
}

/// Adds the fields that are absent; existing ones stay.
fn merge(into: &mut Value, extra: Value) {
    match (into, extra) {
        (Value::Object(into), Value::Object(extra)) => {
            for (name, value) in extra {
                match into.get_mut(&name) {
                    Some(present) => merge(present, value),
                    None => drop(into.insert(name, value)),
                }
            }
        }
        (Value::Array(into), Value::Array(extra)) => {
            for value in extra {
                if let Some(element) = into.iter_mut().find(|element| identifies(&value, element)) {
                    merge(element, value);
                }
            }
        }
        (_, _) => {}
    }
}

/// Whether the leftovers belong to this element: they share exactly the fields that identify it.
fn identifies(leftovers: &Value, element: &Value) -> bool {
    let (Value::Object(leftovers), Value::Object(element)) = (leftovers, element) else { return false };
    let mut shared = leftovers.iter().filter_map(|(name, value)| element.get(name).map(|other| value == other));
    shared.next() == Some(true) && shared.all(|equal| equal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn restored(mut manifest: Value, unmodelled: &Value) -> Value {
        restore(&mut manifest, &unmodelled.to_string());
        manifest
    }

    #[test]
    fn unknown_fields_follow_their_list_element() {
        let manifest =
            json!({"spec": {"taints": [{"key": "b", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}]}});
        let unmodelled = json!({"spec": {"taints": [
            {"key": "a", "effect": "NoExecute", "x": 1},
            {"key": "gone", "effect": "NoExecute", "x": 2},
        ]}});
        let wanted = json!({"spec": {"taints": [
            {"key": "b", "effect": "NoExecute"},
            {"key": "a", "effect": "NoExecute", "x": 1},
        ]}});
        assert_eq!(restored(manifest, &unmodelled), wanted);
    }

    #[test]
    fn unknown_fields_do_not_restore_a_removed_element() {
        let unmodelled = json!({
            "spec": {"taints": [{"key": "a", "effect": "NoExecute", "x": 1}]},
            "status": {"nodeInfo": {"kubeProxyVersion": "v1"}, "images": []},
        });
        let wanted = json!({"spec": {}, "status": {"images": []}});
        assert_eq!(restored(json!({"spec": {}, "status": {}}), &unmodelled), wanted);
    }

    #[test]
    fn modelled_fields_win() {
        let unmodelled = json!({"spec": {"unschedulable": false, "x": 1}});
        let wanted = json!({"spec": {"unschedulable": true, "x": 1}});
        assert_eq!(restored(json!({"spec": {"unschedulable": true}}), &unmodelled), wanted);
    }

    #[test]
    fn unreadable_text_adds_nothing() {
        for text in ["", "[1]", "{", "null"] {
            let mut manifest = json!({"kind": "Node"});
            restore(&mut manifest, text);
            assert_eq!(manifest, json!({"kind": "Node"}), "{text:?}");
        }
    }
}
