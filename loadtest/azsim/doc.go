// Package azsim simulates Azure Queue and Table storage, and of Blob storage what a pump uses: a
// real protocol server in memory, to be steered by tests.
//
// A [Sim] holds any number of storage accounts. Programs reach them with their ordinary Azure
// clients, unchanged: without sockets through [Sim.Transport] (an azcore policy.Transporter and
// http.RoundTripper), by TCP through [Sim.Listen], or by any other way through [Sim.QueueHandler]
// and [Sim.TableHandler]. Credentials are really verified: SharedKey,
// SharedKeyLite, service and account SAS, stored access policies; any bearer token is taken.
//
// The addresses in [Sim.ConnectionString] look like Azure's and are served by [Sim.Transport]
// alone: a client without it would ask the real Azure. Over TCP use [Server.ConnectionString]. For
// a pump, open the accounts with storage/azure and the transport, as the example of package pump
// does.
//
//	sim := azsim.New(azsim.Config{Accounts: []azsim.Account{{Name: "one"}, {Name: "two"}}})
//	client, err := azqueue.NewServiceClientFromConnectionString(sim.ConnectionString("one"),
//		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: sim.Transport()}})
//
// # What it keeps to
//
// Answers follow recordings of the real services or, without a recording, their documentation. If
// Azurite differs, the real service wins. A question that the documents leave open is a parameter:
// whether a get of 32 costs 1 or 32 of the published rate ([Limits]), the answer to a superseded
// pop receipt ([Config]). The published scalability targets are enforced as 503 ServerBusy unless
// [NoLimits] says otherwise. AZURE.md beside this file holds the facts that comments cite, how each
// is known, and which answers rest on memory.
//
// # Steering
//
// [Sim.Inject] makes requests go wrong: answered with an error before or after they acted, broken
// off, cut short, delayed, hung, delivered twice or early or out of order. [Sim.Blackout] and
// [Sim.Hang] make a whole account unreachable, [Sim.SetState] disables or deletes it,
// [Sim.DeleteQueues] deletes its queues. [Sim.SetClockOffset] moves the servers' clock.
// [Sim.Snapshot] remembers a partition of a table and [Snapshot.Restore] rolls it back,
// [Sim.DropRows] loses rows. [Sim.SetLatency] makes tables slower than queues, and a rule that
// delays them does so for a while. [Sim.Stats] tells what happened, [Sim.PartitionLoads] how many
// entities of each partition were asked for, [Sim.Faults] prints the rules in force.
// [Sim.SetLimits] and [Sim.Reset] change the rest while it runs.
//
// # Time and chance
//
// Only package time gives the time, no goroutine runs in the background and no lock is held while
// waiting, so a Sim works inside a testing/synctest bubble, where an hour of throttling takes
// milliseconds. Everything that is left to chance is a hash of the seed, the client
// ([Transport.As]), the operation, the object and how often that came up before: the same seed
// gives the same history, even if other things go on.
package azsim
