// Package message is the messages in a processor's hands: what came with each ([Delivery]), what
// became of its tasks ([Outcomes]), and what is left to do for it ([Plan]).
//
// # Backlog
//
// [Backlog] holds fetched messages with tasks that were not started, within bounds of tasks and
// bytes. It lets tasks start in order, or one alone.
package message
