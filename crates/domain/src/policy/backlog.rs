//! How many runs may wait: of a tenant, and in all.
//!
//! Asked before a run is born that waits, whatever for. Promise: a run that is born running is never refused, and one that
//! waits already is never taken away, so that a backlog over a cap only shrinks.

use std::fmt;

/// The most runs that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Of one tenant.
    pub tenant: u64,
    /// In all.
    pub all: u64,
}

/// Runs of one tenant that may wait, unless said otherwise.
pub const TENANT_MAX: u64 = 2_000_000;

/// Runs that may wait in all, unless said otherwise: five tenants that are full.
pub const ALL_MAX: u64 = 10_000_000;

impl Default for Caps {
    fn default() -> Self {
        Caps { tenant: TENANT_MAX, all: ALL_MAX }
    }
}

/// How many runs wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Of the tenant that is asked about.
    pub tenant: u64,
    /// In all.
    pub all: u64,
}

impl Pending {
    /// With some more of the tenant, and of all.
    pub fn plus(self, other: Pending) -> Pending {
        Pending { tenant: self.tenant + other.tenant, all: self.all + other.all }
    }
}

/// Which cap it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cap {
    /// That of a tenant.
    Tenant,
    /// That of all.
    All,
    /// None: the tenant is suspended.
    Suspended,
}

impl Cap {
    /// All of them; a new one goes to the end.
    pub const ALL: [Cap; 3] = [Cap::Tenant, Cap::All, Cap::Suspended];

    /// The word, as in the API and in the server's settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Cap::Tenant => "tenant_pending_max",
            Cap::All => "pending_max",
            Cap::Suspended => "tenant_suspended",
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A cap that leaves no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Which.
    pub cap: Cap,
    /// What it is.
    pub most: u64,
    /// How many wait.
    pub pending: u64,
}

/// How many more may wait; or which cap leaves no room. Of two, that of the tenant is told, about which its owner can do
/// something.
pub fn room(caps: Caps, pending: Pending) -> Result<u64, Full> {
    let full = |cap, most, pending| Full { cap, most, pending };
    let of_tenant = caps.tenant.saturating_sub(pending.tenant);
    let of_all = caps.all.saturating_sub(pending.all);
    match (of_tenant, of_all) {
        (0, _) => Err(full(Cap::Tenant, caps.tenant, pending.tenant)),
        (_, 0) => Err(full(Cap::All, caps.all, pending.all)),
        (of_tenant, of_all) => Ok(of_tenant.min(of_all)),
    }
}

/// Whether a cap may soon be reached: then it is worth knowing how many wait.
pub fn is_near(caps: Caps, pending: Pending) -> bool {
    pending.tenant >= caps.tenant / 2 || pending.all >= caps.all / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { tenant: 10, all: 25 };

    #[test]
    fn what_may_wait_is_what_both_caps_leave() {
        let tenant = |pending| Err(Full { cap: Cap::Tenant, most: 10, pending });
        let all = |pending| Err(Full { cap: Cap::All, most: 25, pending });
        for ((of_tenant, of_all), expected) in [
            ((0, 0), Ok(10)),
            ((3, 3), Ok(7)),
            ((9, 9), Ok(1)),
            ((10, 10), tenant(10)),
            // More than may be: caps were lowered, or another node made some at the same time.
            ((17, 17), tenant(17)),
            ((0, 24), Ok(1)),
            ((0, 25), all(25)),
            ((0, 99), all(99)),
            ((10, 25), tenant(10)),
        ] {
            let pending = Pending { tenant: of_tenant, all: of_all };
            assert_eq!(room(CAPS, pending), expected, "{pending:?}");
        }
    }

    #[test]
    fn a_cap_of_nothing_lets_nothing_wait() {
        let none = Caps { tenant: 0, all: 0 };
        assert!(room(none, Pending::default()).is_err());
        let of_all = Caps { tenant: 5, all: 0 };
        assert_eq!(room(of_all, Pending::default()).map_err(|full| full.cap), Err(Cap::All));
    }

    #[test]
    fn a_cap_is_near_from_its_half_on() {
        for ((tenant, all), expected) in
            [((0, 0), false), ((4, 11), false), ((5, 5), true), ((0, 12), true), ((40, 40), true)]
        {
            assert_eq!(is_near(CAPS, Pending { tenant, all }), expected, "{tenant} {all}");
        }
    }
}
