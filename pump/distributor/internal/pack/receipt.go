package pack

import "github.com/queuepump/queuepump/pump/source"

// receiptPart is how many of the tasks of a receipt are in one envelope.
type receiptPart struct {
	source.Receipt
	Tasks int64
}

// addReceipt notes that another task of a receipt is in an envelope. Acknowledgements come envelope
// by envelope, in any order, from any goroutine; so one slow queue delays only the callers with
// tasks in it.
func addReceipt(parts []receiptPart, r source.Receipt) []receiptPart {
	if r == nil {
		return parts
	}
	if last := len(parts) - 1; last >= 0 && parts[last].Receipt == r {
		parts[last].Tasks++
		return parts
	}
	return append(parts, receiptPart{r, 1})
}
