package scenario

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
)

// task is what a task of a load test says of itself. Its body is a JSON object of a
// fixed layout: people find it in their queues and can read it, and the handler reads
// it for next to nothing.
type task struct {
	n uint64 // how many-th task of the test
	// at and sent are when it was due and when the distributor took it, since the load
	// began; at is noSchedule where as many are offered as are taken.
	at, sent time.Duration
	group    uint8
}

// noSchedule is the due time of a task that no schedule has: it is never late.
const noSchedule = time.Duration(-1)

// noneDue is noSchedule as it is written.
const noneDue = 1<<(4*numberLen) - 1

// The layout: a name and a value by turns. Numbers are hexadecimal with leading
// zeros, times in microseconds, so that every value stands where it always stands.
const (
	nameTest  = `{"loadtest":"`
	nameN     = `","n":"`
	nameAt    = `","at":"`
	nameSent  = `","sent":"`
	nameGroup = `","group":"`
	namePad   = `","pad":"`
	bodyEnd   = `"}`

	idLen, numberLen, groupLen = 8, 12, 2

	offN     = len(nameTest) + idLen + len(nameN)
	offAt    = offN + numberLen + len(nameAt)
	offSent  = offAt + numberLen + len(nameSent)
	offGroup = offSent + numberLen + len(nameGroup)
	offPad   = offGroup + groupLen + len(namePad)

	// MinTaskBytes and MaxTaskBytes bound the size of a task. More than fits one message
	// would measure how tasks are refused.
	MinTaskBytes = 128
	MaxTaskBytes = 32 << 10
)

// appendTask appends the body of a task, size bytes long, of the test named id (8
// characters).
func appendTask(dst []byte, id string, t task, size int) []byte {
	from := len(dst)
	dst = append(append(dst, nameTest...), id...)
	dst = appendHex(append(dst, nameN...), t.n, numberLen)
	at := uint64(noneDue)
	if t.at != noSchedule {
		at = uint64(max(t.at, 0) / time.Microsecond)
	}
	dst = appendHex(append(dst, nameAt...), at, numberLen)
	dst = appendHex(append(dst, nameSent...), uint64(max(t.sent, 0)/time.Microsecond), numberLen)
	dst = appendHex(append(dst, nameGroup...), uint64(t.group), groupLen)
	dst = append(dst, namePad...)
	// Half of the digits are of a hash, so that a packed message is compressed about as well as a
	// message of records with a few different fields.
	var pad [32]byte
	for i := uint64(0); len(dst)-from < size-len(bodyEnd); i++ {
		hash := xxhash.Sum64(strconv.AppendUint(pad[:0:32], t.n+i<<48, 16))
		var b [8]byte
		for j := range b {
			b[j] = byte(hash >> (8 * j))
		}
		hex.Encode(pad[:16], b[:])
		copy(pad[16:], "the-same-in-all.")
		dst = append(dst, pad[:min(len(pad), size-len(bodyEnd)-(len(dst)-from))]...)
	}
	return append(dst, bodyEnd...)
}

func appendHex(dst []byte, v uint64, width int) []byte {
	const digits = "0123456789abcdef"
	for i := width - 1; i >= 0; i-- {
		dst = append(dst, digits[v>>(4*i)&15])
	}
	return dst
}

// readTask reads what appendTask wrote. Anything may be in a queue: ok says that it is a
// task of the test named id.
func readTask(body []byte, id string) (t task, ok bool) {
	if len(body) < MinTaskBytes || !bytes.HasPrefix(body, []byte(nameTest)) ||
		string(body[len(nameTest):len(nameTest)+idLen]) != id {
		return t, false
	}
	number := func(off, width int) uint64 {
		v, err := strconv.ParseUint(string(body[off:off+width]), 16, 64)
		ok = ok && err == nil
		return v
	}
	ok = true
	t.n = number(offN, numberLen)
	if at := number(offAt, numberLen); at == noneDue {
		t.at = noSchedule
	} else {
		t.at = time.Duration(at) * time.Microsecond
	}
	t.sent = time.Duration(number(offSent, numberLen)) * time.Microsecond
	t.group = uint8(number(offGroup, groupLen))
	return t, ok
}
