package send

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/queuepump/queuepump/pump/internal/cluster"
)

// See takes what a member has read of the cluster.
func (r *Router) See(v *cluster.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v.Read.Before(r.viewed) {
		return
	}
	r.heed(v)
	same := slices.Equal(r.spills, v.Spills)
	r.spills = v.Spills
	for m, at := range r.own {
		if at.Before(v.Read) {
			delete(r.own, m) // the view has it, or its owner took it back
			same = false
		}
	}
	if !r.take(v.Workload) && !same {
		r.remake()
	}
}

// heed takes what processors say of themselves; r.mu is held.
func (r *Router) heed(v *cluster.View) {
	r.viewed = v.Read
	r.reads.Store(v.CommonFormat())
	if limits := envelopeLimits(v); limits != nil {
		r.limits.Store(&limits)
	} else {
		r.limits.Store(nil)
	}
}

// Glance takes what a guest has read of the cluster, without the marks: it looks too seldom to
// know which of them stand.
func (r *Router) Glance(v *cluster.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heed(v)
	r.take(v.Workload)
}

// Alone says that this process no longer learns which marks stand.
func (r *Router) Alone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spills = nil
	clear(r.own)
	r.remake()
}

// Trouble names the queues that do not take what is meant for them, in one line.
func (t *Route) Trouble() string {
	var names []string
	why := ""
	for _, o := range t.sinks {
		if o.state() == dark {
			names = append(names, o.name)
			why = o.why()
		}
	}
	said := ""
	switch len(names) {
	case 0:
		return ""
	case 1:
		said = fmt.Sprintf("queue %s is dark (%s)", names[0], why)
	default:
		said = fmt.Sprintf("%d queues are dark, %s first", len(names),
			slices.MinFunc(names, cmp.Compare[string]))
	}
	if n := t.Stuck(); n > 0 {
		said += fmt.Sprintf("; the tasks of %d segments wait, as all three choices are out", n)
	}
	return said
}

// Strained reports whether some queue does not take all of its messages.
func (t *Route) Strained() bool {
	return slices.ContainsFunc(t.sinks, func(s *Sink) bool {
		return s.state() != well
	})
}
