// Package message is one message in a processor's hands: what came with it ([Delivery]), what
// became of its tasks ([Verdict]), and what is left to do for it ([Plan]).
package message
