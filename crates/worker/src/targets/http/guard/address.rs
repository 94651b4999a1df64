//! Which addresses belong to the public internet.
//!
//! Pure. Follows the IANA special-purpose registries; for IPv6 it names what is public instead of
//! what is not, because new special ranges appear there. An address that carries an IPv4 address
//! inside is as public as the one inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not simply public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// This machine: 127.0.0.0/8, `::1`.
    Loopback,
    /// 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16.
    Private,
    /// 100.64.0.0/10, between a carrier or a cloud and its customers.
    Shared,
    /// fc00::/7, the private networks of IPv6.
    UniqueLocal,
    /// 169.254.0.0/16, fe80::/10: neighbours, and the metadata service of most clouds.
    LinkLocal,
    /// fec0::/10, the abandoned private networks of IPv6.
    SiteLocal,
    /// An address of the platform below a virtual machine, though it looks public.
    Platform,
    /// One sender, many receivers.
    Multicast,
    /// 0.0.0.0/8, `::`: this network, which many systems take for this machine.
    Unspecified,
    /// 255.255.255.255.
    Broadcast,
    /// Examples in documents.
    Documentation,
    /// Laboratory measurements: 198.18.0.0/15, 2001:2::/48.
    Benchmarking,
    /// An IPv4 address written as IPv6: `::ffff:a.b.c.d`, `::a.b.c.d`.
    Disguised,
    /// 64:ff9b:1::/48: a translator of the local network, of which we cannot know what it reaches.
    LocalTranslation,
    /// Kept for protocols or for the future.
    Reserved,
}

impl Kind {
    /// The kind in words, for a sentence such as "which is ...".
    pub fn describe(self) -> &'static str {
        match self {
            Kind::Loopback => "this machine (loopback)",
            Kind::Private => "a private network",
            Kind::Shared => "a carrier's or cloud's inner network (100.64.0.0/10)",
            Kind::UniqueLocal => "a private network (fc00::/7)",
            Kind::LinkLocal => "link-local, where clouds keep their metadata service",
            Kind::SiteLocal => "a private network (fec0::/10)",
            Kind::Platform => "a service of the cloud platform",
            Kind::Multicast => "a multicast address",
            Kind::Unspecified => "the unspecified network (0.0.0.0/8 or ::)",
            Kind::Broadcast => "the broadcast address",
            Kind::Documentation => "reserved for documentation",
            Kind::Benchmarking => "reserved for benchmarking",
            Kind::Disguised => "an IPv4 address written as IPv6",
            Kind::LocalTranslation => "a local translation to IPv4 (64:ff9b:1::/48)",
            Kind::Reserved => "reserved",
        }
    }

    /// Networks in which an organisation runs its own services.
    pub(super) fn is_own_network(self) -> bool {
        matches!(self, Kind::Private | Kind::Shared | Kind::UniqueLocal)
    }
}

/// Why the address is not public; nothing when it is.
pub fn kind(address: IpAddr) -> Option<Kind> {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> Option<Kind> {
    match address.octets() {
        [0, ..] => Some(Kind::Unspecified),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some(Kind::Private),
        [100, 64..=127, ..] => Some(Kind::Shared),
        [127, ..] => Some(Kind::Loopback),
        [169, 254, ..] => Some(Kind::LinkLocal),
        // The host agent of every Azure machine, reachable only from inside.
        [168, 63, 129, 16] => Some(Kind::Platform),
        // Protocol assignments; among them the metadata service of Oracle's cloud, 192.0.0.192.
        [192, 0, 0, _] => Some(Kind::Reserved),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some(Kind::Documentation),
        [192, 88, 99, _] => Some(Kind::Reserved),
        [198, 18..=19, ..] => Some(Kind::Benchmarking),
        [224..=239, ..] => Some(Kind::Multicast),
        [255, 255, 255, 255] => Some(Kind::Broadcast),
        [240..=255, ..] => Some(Kind::Reserved),
        _ => None,
    }
}

fn kind_v6(address: Ipv6Addr) -> Option<Kind> {
    let inner = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Kind::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Kind::Loopback),
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(Kind::Disguised),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => kind_v4(inner(high, low)),
        [0x64, 0xff9b, 1, ..] => Some(Kind::LocalTranslation),
        [0x2002, high, low, ..] => kind_v4(inner(high, low)),
        // Teredo: the server in clear, the client's address inverted.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            kind_v4(inner(server_high, server_low)).or_else(|| kind_v4(inner(!high, !low)))
        }
        [0x2001, 2, 0, ..] => Some(Kind::Benchmarking),
        [0x2001, 0..=0x01ff, ..] => Some(Kind::Reserved),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some(Kind::Documentation),
        // ISATAP: an IPv4 address behind a fixed mark, in any network.
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, high, low] => kind_v4(inner(high, low)),
        [0x2000..=0x3fff, ..] => None,
        [0xfc00..=0xfdff, ..] => Some(Kind::UniqueLocal),
        [0xfe80..=0xfebf, ..] => Some(Kind::LinkLocal),
        [0xfec0..=0xfeff, ..] => Some(Kind::SiteLocal),
        [0xff00..=0xffff, ..] => Some(Kind::Multicast),
        _ => Some(Kind::Reserved),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_special_range_is_known_at_both_ends_and_its_neighbours_are_public() {
        let rows = include_str!("../../../../testdata/addresses.txt").lines();
        let rows: Vec<&str> = rows.filter(|row| !row.is_empty() && !row.starts_with('#')).collect();
        for row in &rows {
            let (address, expected) = row.split_once(' ').unwrap();
            let found =
                kind(address.parse().unwrap()).map_or("Public".to_owned(), |kind| format!("{kind:?}"));
            assert_eq!(found, expected.trim(), "{address}");
        }
        println!("addresses: {} rows", rows.len());
    }
}
