// Package storagetest is the conformance suite of the storage contract: one set of cases that
// judges every driver against every server.
//
// A case is one sentence about Azure, or about the contract in package storage, and its test. [Run]
// runs them all against the server that a [Harness] opens: the simulator in process (in virtual
// time), the simulator over TCP, Azurite, and a real account that loadtest/realaccounts tries. A
// server that is known to differ from Azure says so case by case in a list of [Difference], and the
// suite fails if a listed difference no longer shows, so that the list stays true.
//
// Between driver and server stands a [Wire] that loses requests and answers, cuts and garbles them:
// so every server, also one that never fails by itself, shows what the contract calls ambiguous.
package storagetest
