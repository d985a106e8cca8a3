package capacity

import (
	"fmt"
)

// load is the load of a plan's queues at a rate of tasks.
type load struct {
	rate    float64
	packing Packing
	got     float64 // gets for a message
	cost    float64 // what a message counts against the limits of its queue and account
}

func (in *Input) load(p *Plan, rate float64) load {
	l := load{rate: rate, packing: in.packing(rate, p.Segments)}
	var empty float64
	readers := in.readers(p)
	l.got, empty = gets(l.packing.Messages/float64(p.Queues*readers), in.Latency, p.Queues, readers)
	spared := empty * (1 - in.polling(p, &l))
	l.got, empty = l.got-spared, empty-spared
	l.cost = 2 + l.got // put, delete, gets
	if in.GetPerMsg {
		l.cost = 3 + empty // an empty one costs one as well
	}
	return l
}

// readers is how many processors ask each queue: its owner, or all of a shared workload.
func (in *Input) readers(p *Plan) int {
	if in.Shared {
		return max(p.Processors, 1)
	}
	return 1
}

// polling is the part of the time in which processors ask for messages. They do not ask while more
// tasks of a message wait for a handler than half of what they fetch ahead, which is two tasks for
// each handler and what the handlers do in a second (pump/processor/internal/message/backlog.go).
func (in *Input) polling(p *Plan, l *load) float64 {
	if in.HandlerSeconds == 0 || p.Processors == 0 {
		return 1
	}
	handlers := float64(in.Concurrency)
	ahead := 0.0
	if in.HandlerSeconds < fetchAhead {
		ahead = 2*handlers + handlers/in.HandlerSeconds
	}
	busy := min(1, l.rate*in.HandlerSeconds/handlers/float64(p.Processors))
	return 1 - busy*max(0, 1-ahead/2/l.packing.Tasks)
}

// fetchAhead is how long a task may take, in seconds, if others are to be fetched before it has
// ended.
const fetchAhead = 30

const (
	// engineCPU is the time that a processor needs for a task besides opening it and the handler's own
	// work.
	engineCPU = 1e-6
	// requestBytes is what a request and its answer have besides the text of messages: headers and
	// what a message is wrapped into.
	requestBytes = 1200
)

// cpu is the seconds of a core that a task takes in its processor, sending the seconds in the
// distributor.
func (in *Input) cpu(l *load) float64 {
	return in.HandlerCPU + in.Sample.OpenSeconds + engineCPU +
		in.RequestCPU*((l.got+1)/l.packing.Tasks+in.LargePart)
}

func (in *Input) sending(l *load) float64 {
	return in.Sample.PackSeconds + in.RequestCPU*(1/l.packing.Tasks+in.LargePart)
}

// bytes is how many bytes a task brings to its processor's network.
func (in *Input) bytes(l *load) float64 {
	return (l.packing.Bytes+requestBytes*(l.got+1))/l.packing.Tasks +
		in.LargePart*(in.LargeBytes+requestBytes)
}

func (in *Input) bytesPerSecond() float64 { return in.Machine.Mbits * 1e6 / 8 }

// busy is the part of a processor that a task a second keeps busy: the largest part of its
// handlers, CPU and network.
func (in *Input) busy(l *load) float64 {
	return max(in.HandlerSeconds/float64(in.Concurrency), in.cpu(l)/in.Machine.CPUs,
		in.bytes(l)/in.bytesPerSecond())
}

// resource is something that can be full.
type resource struct {
	name, what, remedy string
	used               func(l *load) float64 // the part of it
	ofKey              bool                  // it is about the hottest key
}

// resources are all resources of a plan, with the fullest queue and the fullest processor.
func (in *Input) resources(p *Plan) (all []resource) {
	add := func(name, remedy string, used func(l *load) float64, what string, a ...any) {
		all = append(all, resource{name: name, what: fmt.Sprintf(what, a...), remedy: remedy, used: used})
	}
	queues := ceil(p.Segments, p.Queues) / float64(p.Segments)
	processors := in.spread(p, p.Processors)
	add("accounts", "more accounts, or more tasks in a message",
		func(l *load) float64 {
			blobs := 2 * l.rate * in.LargePart // a put and a get of each body
			return (l.packing.Messages*l.cost + blobs) / in.AccountLimit / float64(p.Accounts)
		},
		"%d x %s messages/s", p.Accounts, Short(in.AccountLimit))
	add("queues", "more queues an account, or more accounts",
		func(l *load) float64 { return l.packing.Messages * l.cost / in.QueueLimit * queues },
		"%d x %s messages/s; the fullest has %s %% of the tasks", p.Queues, Short(in.QueueLimit),
		Short(100*queues))
	if in.HandlerSeconds > 0 {
		add("handlers", "more processors, or a higher --concurrency",
			func(l *load) float64 {
				return l.rate * in.HandlerSeconds / float64(in.Concurrency) * processors
			},
			"%d processors x %d handlers / %s s; the fullest has %s %% of the tasks",
			p.Processors, in.Concurrency, Short(in.HandlerSeconds), Short(100*processors))
	}
	add("processors' CPU", "more or larger machines",
		func(l *load) float64 { return l.rate * in.cpu(l) / in.Machine.CPUs * processors },
		"%d x %s CPUs; the fullest has %s %% of the tasks", p.Processors, Short(in.Machine.CPUs),
		Short(100*processors))
	add("processors' network", "more or larger machines",
		func(l *load) float64 { return l.rate * in.bytes(l) / in.bytesPerSecond() * processors },
		"%d x %s Mbit/s; the fullest has %s %% of the tasks", p.Processors, Short(in.Machine.Mbits),
		Short(100*processors))
	add("distributors' CPU",
		"larger machines, or the input divided among more distributors run --once",
		func(l *load) float64 {
			return l.rate * in.sending(l) / in.Machine.CPUs / float64(p.Distributors)
		}, "%d x %s CPUs", p.Distributors, Short(in.Machine.CPUs))
	if p.Processors > p.Queues && !in.Shared {
		// Processors that share a queue pass messages on to each other, at ten times the cost of one
		// alone (P7), so processors count at most up to the number of queues.
		add("processors a queue", "more queues, or a higher --concurrency",
			func(l *load) float64 { return l.rate * in.busy(l) / float64(p.Queues) },
			"queues %d, processors %d: several read one queue, and put back what is another's", p.Queues,
			p.Processors)
	}
	if in.Sample.Hottest > 0 {
		why := fmt.Sprintf("%s %% of the tasks have the key %s", Short(100*in.Sample.Hottest),
			in.Sample.HottestKey)
		key := len(all)
		add("hottest key's queue", "another --key, or one that is finer: a key has one queue",
			func(l *load) float64 { return in.keyMessages(l, in.withKey(queues)) * l.cost / in.QueueLimit },
			"%s; its queue has %s %%", why, Short(100*in.withKey(queues)))
		if !in.Shared {
			add("hottest key's processor", "another --key, or one that is finer: a key has one processor",
				func(l *load) float64 { return l.rate * in.busy(l) * in.withKey(processors) },
				"%s; its processor has %s %%", why, Short(100*in.withKey(processors)))
		}
		for i := range all[key:] {
			all[key+i].ofKey = true
		}
	}
	return all
}

// withKey is the part of all tasks that goes where the hottest key goes: that key, and the part
// `others` of the other tasks. Segments are shared out by number, not by contents.
func (in *Input) withKey(others float64) float64 {
	return in.Sample.Hottest + (1-in.Sample.Hottest)*others
}

// keyMessages is how many messages a second go where the hottest key goes, with that part of all
// tasks. The key's own messages fill up before the others do.
func (in *Input) keyMessages(l *load, part float64) float64 {
	key := l.rate * in.Sample.Hottest
	return key/in.packing(key, 1).Tasks + l.rate*(part-in.Sample.Hottest)/l.packing.Tasks
}
