#!/usr/bin/env bash
# What dropping a large partition of history does to slots that are due meanwhile.
#
#   bench/drop-partition.sh postgres://punctual@127.0.0.1:7432/EMPTY [ROWS] [RATE] [SECONDS]
#
# Makes a partition whose time is over (10,000,000 rows unless said otherwise), runs `punctual bench steady` (10,000
# slots a second for 120 s), hands the partition over while that runs, and says when retention dropped it. The bench tells
# lateness in steps of ten seconds: compare the step of the drop with its neighbours. Needs psql and target/release/punctual.
set -euo pipefail
address=${1:?the address of an empty database}
rows=${2:-10000000}
rate=${3:-10000}
seconds=${4:-120}
punctual=$(dirname "$0")/../target/release/punctual
sql() { psql --quiet --no-align --tuples-only --set ON_ERROR_STOP=1 "$address" "$@"; }

"$punctual" migrate up --store "$address" >/dev/null
# Class 0 is kept a day, in periods of two hours: this one ended two days ago.
period=$((2 * 3600 * 1000))
from=$((($(date +%s%3N) - 2 * 24 * 3600 * 1000) / period * period))
first=$((from << 20)) last=$(((from + period) << 20))
echo "making $rows rows"
sql <<SQL
create table history_0_$from (like history_0 including defaults);
insert into history_0_$from
select 0, 10, 1, $first + n * (($last - $first) / $rows), gen_random_uuid(), 0, decode(repeat('5a', 90), 'hex')
from generate_series(0, $rows - 1) n;
alter table history_0_$from add primary key (class, seq);
create index on history_0_$from (job, seq);
create index on history_0_$from (tenant, seq);
create index on history_0_$from (seq) where state in (11, 12);
alter table history_0_$from add check (class = 0 and seq >= $first and seq < $last);
checkpoint;
SQL
echo "$(sql -c "select pg_size_pretty(pg_total_relation_size('history_0_$from'))") of history"

"$punctual" bench steady --store "$address" --jobs $((rate * 100)) --rate "$rate" --seconds "$seconds" &
bench=$!
# The node starts when everything is registered; retention looks once a minute from then on.
until [ "$(sql -c 'select count(*) from (select from nodes limit 1) n')" = 1 ]; do sleep 0.2; done
sleep 20
sql -c "alter table history_0 attach partition history_0_$from for values from ($first) to ($last);
        insert into partitions values (0, $first, $last)"
attached=$(date +%s.%N)
while [ "$(sql -c "select to_regclass('history_0_$from') is null")" = f ]; do
    kill -0 $bench 2>/dev/null || { echo "it was not dropped"; exit 1; }
    sleep 0.1
done
echo "attached 20 s after the node started, dropped $(echo "$(date +%s.%N) - $attached" | bc) s later"
wait $bench
