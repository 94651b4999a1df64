//! What an installation or a tenant lets its targets reach.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::address::{self, Kind};
use super::refusal::{Cause, Refusal};
use crate::Error;
use crate::targets::http::target::{Host, Origin, Target};

/// Rules about hosts, addresses and ports. When an installation and a tenant both have one, a call
/// must pass both: see [`Call::tenant_policy`](crate::targets::http::Call).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Whose rules these are, for refusals: `installation` or `tenant`.
    pub name: &'static str,
    /// Lets addresses of this machine through. `punctual serve` for one user sets it.
    pub allow_loopback: bool,
    /// Addresses to let through whatever they are.
    pub allow_cidrs: Vec<Cidr>,
    /// Names that may lead into private networks (10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7).
    pub allow_hosts: Vec<HostSuffix>,
    /// Ports to open besides 80, 443 and those from 1024 up.
    pub allow_ports: Vec<RangeInclusive<u16>>,
    /// When not empty, the only hosts that may be called.
    pub only_hosts: Vec<HostSuffix>,
    /// Leaves every address and port to the other policy.
    pub trusts_addresses: bool,
}

impl Default for Policy {
    /// The public internet on web ports and high ports.
    fn default() -> Self {
        Policy {
            name: "installation",
            allow_loopback: false,
            allow_cidrs: Vec::new(),
            allow_hosts: Vec::new(),
            allow_ports: Vec::new(),
            only_hosts: Vec::new(),
            trusts_addresses: false,
        }
    }
}

impl Policy {
    /// A tenant that may only call some hosts, and is otherwise bound by its installation.
    pub fn tenant_with_only(hosts: Vec<HostSuffix>) -> Policy {
        Policy { name: "tenant", only_hosts: hosts, trusts_addresses: true, ..Policy::default() }
    }

    /// Judges what can be known without resolving the name: host, port, and an address that is
    /// written in the URL. Ask when a job is registered; every call asks again.
    pub fn check(&self, target: &Target) -> Result<(), Refusal> {
        self.check_origin(target.origin())
    }

    pub(in crate::targets::http) fn check_origin(&self, origin: &Origin) -> Result<(), Refusal> {
        let refusal = |cause| Refusal { policy: self.name, host: origin.host.to_string(), cause };
        if !self.only_hosts.is_empty() && !self.only_hosts.iter().any(|suffix| suffix.covers(&origin.host)) {
            return Err(refusal(Cause::Host));
        }
        if !self.is_port_open(origin.port) {
            return Err(refusal(Cause::Port(origin.port)));
        }
        match origin.host {
            Host::Address(address) => self.check_address(origin, address),
            Host::Name(_) => Ok(()),
        }
    }

    /// Judges an address that the target's host leads to.
    pub(in crate::targets::http) fn check_address(
        &self,
        origin: &Origin,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        if self.trusts_addresses {
            return Ok(());
        }
        let Some(kind) = address::kind(address) else { return Ok(()) };
        let allowed = (kind == Kind::Loopback && self.allow_loopback)
            || self.allow_cidrs.iter().any(|cidr| cidr.contains(address))
            || (kind.is_own_network() && self.allow_hosts.iter().any(|suffix| suffix.covers(&origin.host)));
        if allowed {
            return Ok(());
        }
        Err(Refusal {
            policy: self.name,
            host: origin.host.to_string(),
            cause: Cause::Address(address, kind),
        })
    }

    fn is_port_open(&self, port: u16) -> bool {
        self.trusts_addresses
            || port >= 1024
            || port == 80
            || port == 443
            || self.allow_ports.iter().any(|range| range.contains(&port))
    }
}

/// A block of addresses, such as `10.20.0.0/16` or `fd00::/8`; a lone address is a block of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    bits: u8,
}

impl Cidr {
    /// Whether the address is in the block. An IPv4 block contains no IPv6 spelling of its addresses.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                (u32::from(network) ^ u32::from(address)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                (u128::from(network) ^ u128::from(address)).checked_shr(shift).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    fn has_host_bits(&self) -> bool {
        match self.network {
            IpAddr::V4(network) => u32::from(network).checked_shl(u32::from(self.bits)).unwrap_or(0) != 0,
            IpAddr::V6(network) => u128::from(network).checked_shl(u32::from(self.bits)).unwrap_or(0) != 0,
        }
    }
}

impl FromStr for Cidr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |reason| Error::Setting { setting: "allow_cidrs", text: text.to_owned(), reason };
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let network: IpAddr = address.parse().map_err(|_| wrong("is not an address block"))?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| wrong("has too long a prefix"))?,
            Some(_) => return Err(wrong("is not an address block")),
        };
        let cidr = Cidr { network, bits };
        if cidr.has_host_bits() {
            return Err(wrong("has bits set after its prefix: is the prefix right?"));
        }
        Ok(cidr)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

/// A name and everything below it: `example.com` covers `example.com` and `a.example.com`, not
/// `badexample.com`. An address covers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSuffix(Host);

impl HostSuffix {
    pub(in crate::targets::http) fn covers(&self, host: &Host) -> bool {
        match (&self.0, host) {
            (Host::Address(ours), Host::Address(theirs)) => ours == theirs,
            (Host::Name(suffix), Host::Name(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|before| before.is_empty() || before.ends_with('.')),
            (Host::Name(_), Host::Address(_)) | (Host::Address(_), Host::Name(_)) => false,
        }
    }
}

impl FromStr for HostSuffix {
    type Err = Error;

    /// Reads `example.com`, `.example.com` or `*.example.com`: all three mean the same.
    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.strip_prefix('*').unwrap_or(text);
        let name = name.strip_prefix('.').unwrap_or(name);
        let wrong =
            Error::Setting { setting: "allow_hosts", text: text.to_owned(), reason: "is not a host name" };
        // A host is what a URL can have as its whole authority.
        if name.is_empty() || name.contains(['/', '?', '#', '@']) || name.contains("://") {
            return Err(wrong);
        }
        let bracketed =
            if name.contains(':') && !name.starts_with('[') { format!("[{name}]") } else { name.into() };
        let target = Target::parse(&format!("http://{bracketed}/")).map_err(|_| wrong)?;
        Ok(HostSuffix(target.origin().host.clone()))
    }
}

impl fmt::Display for HostSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn judge(policy: &Policy, url: &str, address: &str) -> Result<(), String> {
        let target = Target::parse(url).unwrap();
        policy
            .check(&target)
            .and_then(|()| policy.check_address(target.origin(), address.parse().unwrap()))
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_block_contains_its_addresses_and_no_others() {
        for (block, address, inside) in [
            ("10.20.0.0/16", "10.20.255.255", true),
            ("10.20.0.0/16", "10.21.0.0", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1/32", "10.0.0.2", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::/0", "fe80::1", true),
            ("10.0.0.0/8", "::ffff:10.0.0.1", false),
        ] {
            let cidr: Cidr = block.parse().unwrap();
            assert_eq!(cidr.contains(address.parse().unwrap()), inside, "{block} {address}");
        }
        for wrong in
            ["", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.1/8", "fd00::/129", "x/8", "10.0.0/8", "10.0.0.0/"]
        {
            assert!(wrong.parse::<Cidr>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_suffix_covers_whole_labels_only() {
        for (suffix, url, covered) in [
            ("example.com", "http://example.com/", true),
            ("example.com", "http://a.b.example.com/", true),
            (".example.com", "http://example.com/", true),
            ("*.Example.com", "http://a.example.com/", true),
            ("example.com", "http://badexample.com/", false),
            ("example.com", "http://example.com.evil.test/", false),
            ("com", "http://example.com/", true),
            ("10.0.0.1", "http://10.0.0.1/", true),
            ("0.0.1", "http://10.0.0.1/", false),
            ("::1", "http://[::1]/", true),
        ] {
            let Ok(parsed) = suffix.parse::<HostSuffix>() else {
                assert_eq!(suffix, "0.0.1");
                continue;
            };
            assert_eq!(parsed.covers(&Target::parse(url).unwrap().origin().host), covered, "{suffix} {url}");
        }
        for wrong in ["", "*", ".", "a..b", "http://a", "a/b", "u@a", "a b"] {
            assert!(wrong.parse::<HostSuffix>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_setting_opens_what_it_names_and_nothing_else() {
        let open = Policy {
            allow_cidrs: vec!["10.20.0.0/16".parse().unwrap()],
            allow_hosts: vec!["svc.internal".parse().unwrap()],
            allow_ports: vec![25..=25, 600..=700],
            ..Policy::default()
        };
        assert_eq!(judge(&open, "http://x.test/", "10.20.1.1"), Ok(()));
        assert!(judge(&open, "http://x.test/", "10.21.1.1").is_err());
        assert_eq!(judge(&open, "http://a.svc.internal/", "10.21.1.1"), Ok(()));
        assert!(
            judge(&open, "http://a.svc.internal/", "127.0.0.1").is_err(),
            "a name does not open loopback"
        );
        assert!(
            judge(&open, "http://a.svc.internal/", "169.254.169.254").is_err(),
            "nor the metadata service"
        );
        assert_eq!(judge(&open, "http://x.test:25/", "8.8.8.8"), Ok(()));
        assert!(judge(&open, "http://x.test:26/", "8.8.8.8").is_err());
        let local = Policy { allow_loopback: true, ..Policy::default() };
        assert_eq!(judge(&local, "http://localhost:8080/", "127.0.0.1"), Ok(()));
        assert_eq!(judge(&local, "http://localhost:8080/", "::1"), Ok(()));
        assert!(judge(&local, "http://x.test/", "10.0.0.1").is_err());
        assert!(judge(&local, "http://x.test/", "0.0.0.0").is_err());
        assert!(judge(&local, "http://x.test/", "::ffff:127.0.0.1").is_err());
    }

    #[test]
    fn a_tenant_narrows_what_its_installation_allows_and_cannot_widen_it() {
        let tenant = Policy::tenant_with_only(vec!["example.com".parse().unwrap()]);
        assert_eq!(judge(&tenant, "http://a.example.com/", "10.0.0.1"), Ok(()), "addresses are not its duty");
        assert_eq!(
            judge(&tenant, "http://other.test/", "8.8.8.8"),
            Err("the tenant policy refuses `other.test`, which is not among the hosts it allows; \
                 `other.test` in `only_hosts` would allow it"
                .to_owned())
        );
    }

    #[test]
    fn a_refusal_names_the_address_and_the_way_out() {
        let policy = Policy::default();
        for (url, address, expected) in [
            (
                "http://meta.test/",
                "169.254.169.254",
                "the installation policy refuses `meta.test`: it leads to 169.254.169.254, which is link-local, \
                 where clouds keep their metadata service; `169.254.169.254/32` in `allow_cidrs` would allow it",
            ),
            (
                "http://db.test/",
                "10.1.2.3",
                "the installation policy refuses `db.test`: it leads to 10.1.2.3, which is a private network; \
                 `10.1.2.3/32` in `allow_cidrs`, or `db.test` in `allow_hosts`, would allow it",
            ),
            (
                "http://127.0.0.1/",
                "127.0.0.1",
                "the installation policy refuses `127.0.0.1`, which is this machine (loopback); \
                 `allow_loopback` would allow it",
            ),
            (
                "http://mail.test:25/",
                "8.8.8.8",
                "the installation policy refuses port 25 of `mail.test`: below 1024 only 80 and 443 are open; \
                 `25` in `allow_ports` would allow it",
            ),
        ] {
            assert_eq!(judge(&policy, url, address), Err(expected.to_owned()));
        }
    }
}
