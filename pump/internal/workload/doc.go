// Package workload keeps what is pinned when a workload is made (its shard map, the number of
// segments, the mode of delivery), the rows of its runs from open to closed, and what each process
// has done of a run.
//
// A workload has an incarnation: a row that was deleted and made again is another workload, and a
// row that came back older ([ErrRolledBack]) is told from both. Each account has an anchor that
// names the last maker of the workload, so that two configurations with different orders of the
// accounts make one workload, not two.
//
// # A row that came back
//
// A row that is gone, or has another incarnation, ends every process of the old workload: the
// process gives up what it holds, stops putting, and does not make the row again ([Lost]). A row of
// the same incarnation with an older map came back as it was: a fail-over of the control account,
// or a restore.
//
//   - The first process that sees it writes the map that it knows into the row (putBack), because
//     queues that only the newer map has hold messages. All members say so as errors.
//   - The version is above that of every map so far, for an operator may have changed the older map
//     meanwhile. MapOrigin beside it says which version the map had, so a process that knows a
//     newer map still puts that back.
//   - Rows of runs that are gone are made again by the run's distributor, at its next beat or when
//     it seals. An elected distributor that stands by seals and closes its last run again for ten
//     minutes.
//   - Epochs tell an election row that is gone or came back: the row's epoch is below what the
//     process has seen in it, or below what a run's row has. The next term's epoch is above all of
//     them. The process that led the latest term has the run's checkpoint and goes on at once.
//     Others wait until that process must be dead, and begin the same run from its start.
//   - A leader that is to continue a run without a row makes the row as a broken run's. Its tasks
//     are done, not quarantined, and another run begins.
package workload
