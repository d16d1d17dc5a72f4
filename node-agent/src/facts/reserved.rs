//! Reserved resources: the values of `--system-reserved` and `--kube-reserved`.

use std::collections::BTreeMap;
use std::str::FromStr;

use muster_lifecycle::quantity::Quantity;
use thiserror::Error;

/// `pid` is not a resource of a node; it is accepted because upstream's configurations contain it.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved(BTreeMap<&'static str, Quantity>);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{item:?}: {rule}")]
pub struct ReservedError {
    pub item: String,
    pub rule: String,
}

impl Reserved {
    pub fn of(&self, resource: &str) -> Quantity {
        self.0.get(resource).copied().unwrap_or_default()
    }
}

impl FromStr for Reserved {
    type Err = ReservedError;

    fn from_str(text: &str) -> Result<Self, ReservedError> {
        let mut amounts = BTreeMap::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (resource, amount) = reserve(item).map_err(|rule| ReservedError { item: item.to_owned(), rule })?;
            if amounts.insert(resource, amount).is_some() {
                let rule = format!("{resource} is reserved twice");
                return Err(ReservedError { item: item.to_owned(), rule });
            }
        }
        Ok(Self(amounts))
    }
}

fn reserve(item: &str) -> Result<(&'static str, Quantity), String> {
    let (name, amount) = item.split_once('=').ok_or("it must be RESOURCE=QUANTITY, as in memory=200Mi")?;
    let known = RESERVABLE.into_iter().find(|known| *known == name.trim());
    let resource = known.ok_or_else(|| format!("only {} can be reserved", RESERVABLE.join(", ")))?;
    let amount: Quantity = amount.trim().parse().map_err(|error| format!("{error}"))?;
    match amount.is_negative() {
        true => Err("it must not be negative".into()),
        false => Ok((resource, amount)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_read_as_upstream_writes_them() {
        let reserved: Reserved = "cpu=100m,memory=200Mi,ephemeral-storage=1Gi,pid=100".parse().unwrap();
        let shown: Vec<_> = RESERVABLE.iter().map(|name| reserved.of(name).to_string()).collect();
        assert_eq!(shown, ["100m", "200Mi", "1Gi", "100"]);
        assert_eq!("".parse(), Ok(Reserved::default()));
        assert_eq!(Reserved::default().of("cpu"), Quantity::from(0));
    }

    #[test]
    fn a_reservation_that_cannot_be_kept_is_refused() {
        for (text, message) in [
            ("cpu", "\"cpu\": it must be RESOURCE=QUANTITY, as in memory=200Mi"),
            ("gpu=1", "\"gpu=1\": only cpu, memory, ephemeral-storage, pid can be reserved"),
            ("cpu=-1", "\"cpu=-1\": it must not be negative"),
            ("cpu=1,cpu=2", "\"cpu=2\": cpu is reserved twice"),
        ] {
            assert_eq!(text.parse::<Reserved>().unwrap_err().to_string(), message);
        }
        let error = "memory=lots".parse::<Reserved>().unwrap_err().to_string();
        assert!(error.starts_with("\"memory=lots\": \"lots\" is not a quantity"), "{error}");
    }
}
