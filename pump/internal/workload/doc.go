// Package workload keeps what is pinned of a workload when it is made (its shard map, the number of
// segments, the mode of delivery), the rows of its runs from open to closed, and what each process
// has done of a run.
//
// A workload has an incarnation: a row that was deleted and made again is another workload, and a
// row that came back older ([ErrRolledBack]) is told from both. Each account has an anchor that
// names who made the workload last, so that two configurations which name the accounts in different
// orders make one workload, not two.
package workload
