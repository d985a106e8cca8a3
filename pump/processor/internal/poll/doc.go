// Package poll gets messages. [Poller] has one schedule of gets over all queues that a processor
// reads (schedule.go), makes the gets (poll.go), backs off from queues that fail (trouble.go) and
// asks idle queues more often while some producer does not nudge (producers.go). It also knows how
// far each queue is read (unread.go) and when all of them are idle (idle.go).
package poll
