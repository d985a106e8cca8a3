// Package ownership says by a view of the cluster which queues a processor reads, whose message is
// whose, and when one that is another's comes back (P6, P7).
package ownership
