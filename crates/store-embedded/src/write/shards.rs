//! Who owns which shard, and tenants.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use punctual_domain::id::{Epoch, ShardId, TenantId, WorkerId};
use punctual_domain::{Ownership, Tenant, TenantName};
use punctual_store::{Error, Shards};
use rusqlite::{OptionalExtension, params};

use crate::error::failed;
use crate::open_runs::Shard;
use crate::row::{millis, timestamp};
use crate::writer::Batch;

impl Batch<'_> {
    pub(crate) fn acquire(
        &mut self,
        owner: WorkerId,
        wanted: &Shards,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Vec<(ShardId, Epoch)>, Error> {
        self.check()?;
        self.note_local(owner)?;
        let ttl = SignedDuration::try_from(ttl).unwrap_or(SignedDuration::MAX);
        let expires_at = now.checked_add(ttl).unwrap_or(Timestamp::MAX);
        let mut taken = Vec::new();
        for index in 0..self.memory.shards.len() {
            let shard = self.memory.shards[index];
            let id = ShardId(index as u16);
            let is_free = shard.owner.is_none() || shard.expires_at < now;
            if shard.owner != Some(owner) && !(wanted.contains(id) && is_free) {
                continue;
            }
            if shard.owner == Some(owner) {
                // The next process takes the shards whatever the row says, so renewing is not written: an idle node
                // leaves the disk alone.
                self.memory.shards[index].expires_at = expires_at;
                taken.push((id, shard.epoch));
                continue;
            }
            // Taking over starts a new epoch, which fences the old owner.
            let epoch = Epoch(shard.epoch.0 + 1);
            self.write_shard(index, Some(owner), epoch, expires_at)?;
            taken.push((id, epoch));
        }
        Ok(taken)
    }

    pub(crate) fn hand_over(
        &mut self,
        owner: WorkerId,
        shards: &[(ShardId, WorkerId, Timestamp)],
    ) -> Result<(), Error> {
        self.check()?;
        for (id, heir, until) in shards {
            let index = usize::from(id.0);
            let shard = self.memory.shards[index];
            if shard.owner == Some(owner) {
                self.write_shard(index, Some(*heir), Epoch(shard.epoch.0 + 1), *until)?;
            }
        }
        Ok(())
    }

    /// Owners, epochs and ends of all shards; who is live and what is due is not known here.
    pub(crate) fn ownerships(&self) -> Vec<Ownership> {
        let of = |(index, shard): (usize, &Shard)| Ownership {
            shard: ShardId(index as u16),
            owner: shard.owner,
            epoch: shard.epoch,
            expires_at: shard.expires_at,
            density: 0,
        };
        self.memory.shards.iter().enumerate().map(of).collect()
    }

    pub(crate) fn leave(&mut self, owner: WorkerId, now: Timestamp) -> Result<(), Error> {
        self.check()?;
        for index in 0..self.memory.shards.len() {
            let shard = self.memory.shards[index];
            if shard.owner == Some(owner) {
                self.write_shard(index, None, shard.epoch, now)?;
            }
        }
        Ok(())
    }

    fn write_shard(
        &mut self,
        index: usize,
        owner: Option<WorkerId>,
        epoch: Epoch,
        expires_at: Timestamp,
    ) -> Result<(), Error> {
        let bytes = owner.map(|owner| *owner.as_bytes());
        self.line(
            "update shards set owner = ?2, epoch = ?3, expires_at = ?4 where shard = ?1",
            params![index as i64, bytes, epoch.0 as i64, millis(expires_at)],
        )?;
        let shard = &mut self.memory.shards[index];
        (shard.owner, shard.epoch, shard.expires_at) = (owner, epoch, expires_at);
        Ok(())
    }

    pub(crate) fn put_tenant(&mut self, name: &TenantName, now: Timestamp) -> Result<Tenant, Error> {
        self.check()?;
        self.line(
            "insert into tenants (name, created_at) values (?1, ?2) on conflict do nothing",
            params![name.as_str(), millis(now)],
        )?;
        let found: Option<(u32, i64)> = self
            .connection
            .query_row("select id, created_at from tenants where name = ?1", [name.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(failed)?;
        let (id, created_at) = found.ok_or_else(|| crate::row::damaged("a tenant that was just written"))?;
        Ok(Tenant { id: TenantId(id), name: name.clone(), created_at: timestamp(created_at)? })
    }
}
