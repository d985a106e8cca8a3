// Package row keeps rows of the one Azure table in which the processes of a workload agree.
// Everything rests on one atom, the conditional write of a table row, and on one small interface
// over it, [Row]: read a row; try an optimistic write. Packages workload, election, cluster, ledger
// and coordination each keep some of the rows:
//
//	row            partition          row key           what it is
//	owners         NAME               owner.NNNN        who owns segments NNNN to NNNN+511, and each
//	                                                    one's epoch (xNNNNN from 10,000 on)
//	member         NAME               present.INSTANCE  a process that takes part: its beat, what it
//	                                                    holds and wants
//	spill          NAME               spill             which choices of which segments are marked
//	                                                    (P6.3)
//	anchor         NAME               anchor            in each account: who last set about making
//	                                                    the workload (Maker)
//	workload       NAME               workload          shard map, number of segments, delivery;
//	                                                    pinned when created
//	run            NAME.runs          32 hex digits     one distribution; never removed by age (P1.1,
//	                                                    docs/protocols.md)
//	run by time    NAME.runs          t.TIME.RUN        makes runs listable newest first
//	election       NAME.election      election          who distributes, until when, and how far it
//	                                                    got
//	clock          several            clock             written only to learn the service's time
//	gate           NAME.gates         the gate's name   open or not
//	id range       NAME.ids           the range's name  the next number that is free
//	claim          NAME.claims.X      hash of a key     when work on the key began and ended (16
//	                                                    partitions)
//	history        NAME.history       m.NNN             how the workload was in minute NNN of a ring
//	                                                    of 360
//	tally          NAME.progress      RUN.INSTANCE      what an instance has done of a run
//	ledger head    NAME.ledger.PP     head.SSSS         what is recorded of segment SSSS, under whose
//	                                                    epoch (PP = SSSS/64; xSSSSS from 10,000 on)
//	ledger page    NAME.ledger.PP     page.SSSS.NNNNNN  more of it; never changed, only replaced
//
// # Ambiguous answers
//
// A timeout, a broken connection or a 5xx means that a write may be done, or may be done later.
// Every write carries a fresh nonce. After an ambiguous answer the row is read back. If it has the
// write's nonce, the write was done. If it is the version that the write was based on, the write
// may still land: the same bytes go out again with the same condition and nonce (P3.5). If it is
// anything else, another write won. The same holds for a 409 or 412 that follows an ambiguous
// attempt: the cause may be the process's own write (window 20). After a 503 for too many requests
// the same bytes go out again without reading, which spares a busy partition a request each time:
// if the refused write landed, the next is answered by a 412.
//
// # Tombstone
//
// Tombstone makes the message that tells an owner that quarantined tasks were given up (P4.4), and
// finds the row of a cause that is too large for a message.
package row

// TableName is the table, in the control account, that holds the rows of every
// workload.
const TableName = "queuepump"
