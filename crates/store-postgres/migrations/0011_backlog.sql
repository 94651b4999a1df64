-- Slots that got no run because as many waited as may: by the cap of their tenant (1) or by that of all (2). Their fate is that of
-- slots that were missed, which is what nodes of older schemas tell of them; a fate that these do not know would keep them from
-- firing.
alter table ledger add column cap smallint;
