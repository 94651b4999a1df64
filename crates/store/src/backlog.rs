//! How many runs wait, by tenant, as a store knows it.

use std::collections::HashMap;

use punctual_domain::id::TenantId;
use punctual_domain::policy::backlog::Pending;

/// See the module. It grows with tenants, not with runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    by_tenant: HashMap<TenantId, i64>,
    all: i64,
}

impl Backlog {
    /// Some more of a tenant wait, or some less. What is counted while others write may be taken away before it was added.
    pub fn add(&mut self, tenant: TenantId, runs: i64) {
        let known = self.by_tenant.entry(tenant).or_default();
        *known += runs;
        self.all += runs;
        if *known == 0 {
            self.by_tenant.remove(&tenant);
        }
    }

    /// How many wait of a tenant, and in all.
    pub fn of(&self, tenant: TenantId) -> Pending {
        let known = self.by_tenant.get(&tenant).copied().unwrap_or_default();
        Pending { tenant: least(known), all: least(self.all) }
    }

    /// How many wait in all.
    pub fn all(&self) -> u64 {
        least(self.all)
    }

    /// How many wait of the tenant that has most, and in all.
    pub fn most(&self) -> Pending {
        let most = self.by_tenant.values().copied().max().unwrap_or_default();
        Pending { tenant: least(most), all: least(self.all) }
    }

    /// What another has counted is added.
    pub fn add_all(&mut self, other: &Backlog) {
        for (tenant, runs) in &other.by_tenant {
            self.add(*tenant, *runs);
        }
    }
}

fn least(runs: i64) -> u64 {
    u64::try_from(runs).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_away_first_and_added_later_comes_out_even() {
        let (one, other) = (TenantId(1), TenantId(2));
        let mut backlog = Backlog::default();
        backlog.add(one, -2);
        backlog.add(other, 5);
        assert_eq!(backlog.of(one), Pending { tenant: 0, all: 3 });
        backlog.add(one, 3);
        assert_eq!(backlog.of(one), Pending { tenant: 1, all: 6 });
        assert_eq!(backlog.most(), Pending { tenant: 5, all: 6 });
        let mut sum = backlog.clone();
        sum.add_all(&backlog);
        assert_eq!(sum.of(other), Pending { tenant: 10, all: 12 });
        backlog.add(one, -1);
        backlog.add(other, -5);
        assert_eq!(backlog, Backlog::default(), "a tenant of which none waits is forgotten");
    }
}
