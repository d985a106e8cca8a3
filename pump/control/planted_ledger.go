package control

// The mistakes about the ledger. They are not in planted.go because the scripts of the
// cluster, which play everything there, know nothing of it.
const (
	noFence            mistake = "a new owner reads the ledger and does not write its epoch into it"
	ledgerNoReadBack   mistake = "a transaction without an answer counts as recorded"
	blindRetryAfter412 mistake = "a value computed before is written over the new ETag"
)
