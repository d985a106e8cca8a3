// Package azure is the storage contract on Azure Storage: queues through azqueue, tables through
// aztables and block blobs through azblob.
//
// # What the SDK does here and what it does not
//
// The SDK makes every request, signs it (shared key, SAS or bearer token) and names itself;
// policies of the driver carry the bytes. Each call travels with an exchange in its context:
//
//	queue.go, table.go    check the arguments, make the body, call the SDK
//	container.go          the same for blobs, whose addresses it makes
//	document.go           the body of a put or replacement
//	exchange.go           the carrier policy puts other bodies into the SDK's request before it is
//	                      signed
//	transport.go          the wire sends it, reads the whole answer within a bound
//	exchange.go           the carrier ends the SDK's call there: the SDK never decodes an answer
//	errors.go             status and service code become a storage.Error, without secrets
//	messages.go           messages out of the answer's XML
//	entity.go, batch.go   rows out of JSON, the outcome of a batch out of its multipart body
//
// The SDK's own path is left out for what it does to data. encoding/xml replaces characters that
// XML does not have without an error, and takes 20 ms over 32 messages of 23 KiB where a byte scan
// takes 2. An update always uploads the text again, or erases it. aztables passes integers through
// float64, throws the ETags of a batch away and panics if a batch answer has no line end.
//
// # One call, one request
//
// The SDK's retries are off: it repeats every verb, Put included, so a lost answer became two
// messages and a throttle never reached the budget. net/http repeats a GET whose connection broke,
// and a Get of messages is a GET that hides up to 32 of them, so the client of [NewTransport] marks
// GETs as not repeatable. The one exception is a 401 with a claims challenge, on which azcore
// fetches a new token and asks again: a request that was refused did nothing.
package azure
