// Package settle ends deliveries. All verdicts on a message's tasks become one plan
// (plan.go): copies to put, then one final request. [Settlers] carries it out (settle.go) in this
// order: the copies are acknowledged, the result is recorded, then the message is deleted, replaced
// or released. A step that fails is tried again from where it stopped.
//
// quarantine.go makes the copies for quarantine. forward.go brings messages of others home, and
// hints.go tells their owners.
package settle
