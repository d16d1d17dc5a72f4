//! Commands about the level in force: it only rises, and only to what every replica speaks.

use crate::apply::{Application, ApplyResult};
use crate::command::ReceiptEffect;
use crate::judge::upgrade::{UpgradeOutlook, held_back, holding_back, outlook};
use crate::object::level_in_force::LevelInForce;
use crate::object::record::RecordKey;
use crate::object::replica::check_version;
use crate::value::level::Level;
use crate::value::text::Text;

impl Application<'_> {
    /// The leader found that the time has come. Replicas may have announced other levels since.
    pub(crate) fn raise_level(&mut self, to: Level, version: &Text) -> ApplyResult {
        check_version(version)?;
        if to <= self.state.level() {
            return Ok(self.receipt(ReceiptEffect::Unchanged));
        }
        if let Some(replica) = holding_back(self.state, to).next() {
            return Err(held_back(to, replica));
        }
        self.state.level = LevelInForce { level: to, raised_by: version.clone(), raised_at: self.now };
        self.touch_key(RecordKey::LevelInForce);
        Ok(self.receipt(ReceiptEffect::Changed))
    }

    /// An operator does not want to wait: raises to the highest level that all replicas speak.
    pub(crate) fn finalize_upgrade(&mut self, version: &Text) -> ApplyResult {
        match outlook(self.state) {
            UpgradeOutlook::Settled => Ok(self.receipt(ReceiptEffect::Unchanged)),
            UpgradeOutlook::HeldBack { to } | UpgradeOutlook::Due { to, .. } | UpgradeOutlook::Manual { to } => {
                self.raise_level(to, version)
            }
        }
    }
}
