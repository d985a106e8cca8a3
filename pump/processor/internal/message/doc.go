// Package message is the messages in a processor's hands: what came with each ([Delivery]), what
// became of its tasks ([Outcomes]), and what is left to do for it ([Plan]).
//
// # Backlog
//
// [Backlog] holds fetched messages with tasks that were not started, within bounds of tasks and
// bytes. It lets tasks start in order, or one alone.
//
// # Keeper
//
// [Keeper] keeps messages hidden while they are in hand, for as long as package leases says.
//
// # Lost leases
//
// A renewal without an answer is tried again with the known receipt. Success means that the lost
// one never acted. "Gone" means that it did, or that another process has the message: then no
// further task of the message is started, running handlers may go on until the old deadline less
// the margin, and nothing is deleted. "Gone" without such doubt ends handlers at once.
//
// A lease that merely ran out does not stop a delete of finished work: its receipt is good until
// another process gets the message (window 10), so the delete is tried for five more minutes.
// Copies (poison, other delays) are only put while the lease is trusted.
package message
