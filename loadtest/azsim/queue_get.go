package azsim

import (
	"net/http"
	"time"
)

// getMessages: learn.microsoft.com/rest/api/storageservices/get-messages.
func (s *queueStore) getMessages(r *request, name string) reply {
	n, rep := intParameter(r, "numofmessages", 1, 1, maxMessages)
	if rep != nil {
		return *rep
	}
	visibility, rep := intParameter(r, "visibilitytimeout", 30, 1, maxVisibility)
	if rep != nil {
		return *rep
	}
	return s.with(r, name, func(q *queue) reply {
		got := q.take(int(n), r.now.UnixNano(), time.Duration(visibility)*time.Second, r.mischief)
		return reply{status: http.StatusOK, header: xmlNoCache(), body: renderGot(got), served: len(got)}
	})
}

// take leases up to n visible messages. All of one get carry the same receipt, to catch a client
// that tells messages apart only by receipts (AZURE.md A3).
func (q *queue) take(n int, now int64, lease time.Duration, mis mischief) []*message {
	var got []*message
	if mis.reorder {
		got = q.shuffled(n, now, mis.hash)
	}
	receipt := popReceipt{}
	for i := 0; i < n; i++ {
		var m *message
		if !mis.reorder {
			m = q.messages.first(now)
		} else if i < len(got) {
			m = got[i]
		}
		if m == nil {
			break
		}
		if i == 0 {
			receipt = q.nextReceipt(receiptGiven, now+int64(lease))
		}
		m.dequeued++
		m.receipt = receipt
		q.messages.show(m, leaseEnd(m, now, lease), now)
		if !mis.reorder {
			got = append(got, m)
		}
	}
	// Only now: a message shown again at once would be taken twice by one get.
	for i, m := range got {
		q.betray(m, now, lease, mis, uint64(i))
	}
	return got
}

// leaseEnd is when a lease runs out: at the latest when the message expires (AZURE.md A3, clamp).
func leaseEnd(m *message, now int64, lease time.Duration) int64 {
	return min(now+int64(lease), m.expires)
}

// betray makes a leased message visible before its time, while the answer
// still promises the whole lease.
func (q *queue) betray(m *message, now int64, lease time.Duration, mis mischief, i uint64) {
	switch {
	case mis.twice:
		q.messages.show(m, now, now)
	case mis.early && lease > 0:
		part := 0.1 + 0.8*drawShare(drawMix(mis.hash, i, 5))
		q.messages.show(m, min(now+int64(part*float64(lease)), m.expires), now)
	}
}

// reorderWindow is how far ahead a Reorder fault reaches.
const reorderWindow = 256

// shuffled chooses up to n of the first visible messages, in an order that the hash decides.
func (q *queue) shuffled(n int, now int64, h uint64) []*message {
	ms := q.messages.visible(now, max(n, reorderWindow))
	for i := range min(n, len(ms)) {
		j := i + int(drawMix(h, uint64(i), 6)%uint64(len(ms)-i))
		ms[i], ms[j] = ms[j], ms[i]
	}
	return ms[:min(n, len(ms))]
}
