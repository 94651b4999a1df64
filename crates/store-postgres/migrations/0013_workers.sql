-- What workers that pull tell of themselves, for lists. Nodes of older schemas write their rows without it.
alter table workers add column tenant int, add column about text;
