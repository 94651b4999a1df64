//! A refusal: who refused what, why, and the way out.

use std::fmt;
use std::net::IpAddr;

use super::address::Kind;

/// Why the guard does not let a call through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    pub(super) policy: &'static str,
    pub(super) host: String,
    pub(super) cause: Cause,
}

/// What exactly is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The host leads to an address that is not public.
    Address(IpAddr, Kind),
    /// The name is not among the only ones allowed.
    Host,
    /// The port is neither a web port nor above 1023.
    Port(u16),
}

impl Refusal {
    /// The host of the target.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address that is refused, when it was the address.
    pub fn address(&self) -> Option<IpAddr> {
        match self.cause {
            Cause::Address(address, _) => Some(address),
            Cause::Host | Cause::Port(_) => None,
        }
    }

    /// Which setting would allow it.
    pub fn way_out(&self) -> String {
        match self.cause {
            Cause::Address(_, Kind::Loopback) => "`allow_loopback` would allow it".to_owned(),
            Cause::Address(_, Kind::Disguised) => "write the IPv4 address as such".to_owned(),
            Cause::Address(address, kind) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                let by_name = self.host.parse::<IpAddr>().is_err() && kind.is_own_network();
                let or =
                    if by_name { format!(", or `{}` in `allow_hosts`,", self.host) } else { String::new() };
                format!("`{address}/{bits}` in `allow_cidrs`{or} would allow it")
            }
            Cause::Host => format!("`{}` in `only_hosts` would allow it", self.host),
            Cause::Port(port) => format!("`{port}` in `allow_ports` would allow it"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (policy, host) = (self.policy, &self.host);
        write!(f, "the {policy} policy refuses ")?;
        match self.cause {
            Cause::Address(address, kind) if *host == address.to_string() => {
                write!(f, "`{address}`, which is {}", kind.describe())?;
            }
            Cause::Address(address, kind) => {
                write!(f, "`{host}`: it leads to {address}, which is {}", kind.describe())?;
            }
            Cause::Host => write!(f, "`{host}`, which is not among the hosts it allows")?,
            Cause::Port(port) => write!(f, "port {port} of `{host}`: below 1024 only 80 and 443 are open")?,
        }
        write!(f, "; {}", self.way_out())
    }
}
