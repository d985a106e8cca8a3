package pump

import (
	"context"
	"log/slog"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.opentelemetry.io/otel/trace"

	"github.com/queuepump/queuepump/pump/storage"
)

// Config says which accounts a workload lives in. It is the same for its
// distributors and its processors; the zero value of every optional field works.
type Config struct {
	// Workload names the set of queues and control rows: 3 to 40 of a-z, 0-9
	// and single dashes, beginning with a letter and ending with no dash,
	// because queue names are made of it.
	Workload string
	// Accounts are the storage accounts to stripe over, at least one.
	Accounts []Account
	// Control names the account whose table holds the workload's rows. Default: the first. A
	// workload whose rows are in another account is refused, and not made a second time.
	Control string
	// Segments is the number of segments, pinned when the workload is created: a multiple of 64 up
	// to 16,384, at least as many as queues; 0 for 32 a queue within 64 to 4,096; or [Shared].
	Segments int
	// Delivery is a property of the workload, pinned when it is created. Default [AtLeastOnce].
	Delivery Delivery
	// ForeignKey names the field that is the key of a message that another program put, as
	// source.TextSource.Key does for a line: "city", or "a.b" for b inside of a. It is pinned when the
	// workload is made. Default: such messages have no key, and are segmented by their text.
	ForeignKey string
	// ForeignEncoding says how the body of another program's message is decoded: "auto" decodes base64
	// of JSON, "base64" base64 of anything, "text" nothing. Default "auto".
	ForeignEncoding string
	// ForeignSplit makes a task of each element of another program's message that is a JSON array, of
	// up to 10,000 elements. All processors must have the same: with another, a task's identity is
	// another.
	ForeignSplit bool
	// Retention is how long the rows of a run that is over are kept, and how long its tasks in
	// quarantine can be redriven as tasks of that run: at least a minute, by the server's clock.
	// Default 7 days. A copy of a task that turns up later is quarantined.
	Retention time.Duration
	// Instance is this process's unique name in logs, rows and quarantined messages: 1 to 200 of
	// letters, digits and _ . ~ -. Default: host name, process id and a random part.
	Instance string
	// Admin is where other processes reach this one's admin port, host:port; it is
	// published in the process's row. Empty: nowhere, so no process can nudge it.
	Admin string
	// Nudge carries a hint to another process. Default: an HTTP request to its
	// admin port. It may fail silently and must return when ctx ends.
	Nudge func(ctx context.Context, n Nudge) error
	// Budget bounds the requests of all processes of the workload together. They share it by demand.
	// Default: the published limits.
	Budget Budget
	// Prices are what requests cost. Reports of money and Budget.CostPerDay use them. Default:
	// [Prices.OrPublished].
	Prices Prices
	// Sample is how often one process of the workload looks at all queues, for Backlog in its
	// state: a second at least, and more where there are many queues. That process also keeps the
	// history of the workload (status.History) and the sum of the day's requests. Default 0: not
	// at all.
	Sample time.Duration
	// Log receives what an operator needs to know, such as an account that a start or a Send waits
	// for. Default [slog.Default]; slog.New(slog.DiscardHandler) is silent.
	Log *slog.Logger
	// Hooks observes the engine; see [Hooks].
	Hooks Hooks
	// TracerProvider makes spans of tasks that are sent and handled, by OpenTelemetry; where a span is
	// sampled its context goes with the task. Default: none, and tracing costs nothing.
	TracerProvider trace.TracerProvider
}

// Shared as Config.Segments means that no segment has an owner: any processor
// takes any task. Tasks are still placed by segment.
const Shared = -1

// Delivery is a workload's delivery mode.
type Delivery string

// The delivery modes.
const (
	// AtLeastOnce delivers each task once or, after a failure, more often.
	AtLeastOnce Delivery = "at-least-once"
	// Once records the completion of each task exactly once in a ledger: a copy of a task that
	// is done is recognised and not handled. A handler that was interrupted before its task was
	// recorded runs again, so an effect outside must still bear repetition; an effect on a
	// reducer's state happens exactly once.
	Once Delivery = "once"
)

// Account is one storage account and how to reach it: a connection string (with
// an account key or a SAS), or an endpoint (with a SAS in it, or with a token credential).
type Account struct {
	// Name is used in the shard map, logs and metrics. Default: the account's
	// own name, taken from the connection string or the endpoint.
	Name string
	// ConnectionString as the Azure portal shows it.
	ConnectionString string
	// Endpoint of the queue service, for example https://NAME.queue.core.windows.net.
	Endpoint string
	// TableEndpoint is only needed when it does not follow from Endpoint by
	// ".queue." becoming ".table.".
	TableEndpoint string
	// BlobEndpoint likewise, with ".blob.". Only what keeps blobs needs it.
	BlobEndpoint string
	// Credential goes with Endpoint. Default, when the endpoint has no SAS:
	// azidentity's DefaultAzureCredential.
	Credential azcore.TokenCredential
	// Queues is how many queues of the account to use, 1 to 100. Default: [DefaultQueues], or
	// fewer where there are more than 128 accounts.
	Queues int
	// Foreign are queues of the account, by name, that other programs put messages into. Processors
	// read them and bring each message to where its segment's are; no process of the workload makes
	// them, puts into them or deletes them. They can be added to a workload later (accounts.Add).
	Foreign []string
	// Weight is the account's share of the work relative to the others. Default 1.
	Weight float64
	// ServiceVersion is the version of the storage services that requests are written
	// for, a date such as 2019-07-07. Default: the SDK's. Sovereign clouds and Azure
	// Stack may know only older ones, and answer 400 InvalidHeaderValue to others.
	ServiceVersion string
	// AllowHTTP permits plain http to a host that is not loopback.
	AllowHTTP bool
	// Storage replaces all of the above but Queues and Weight: a ready driver,
	// for tests and for other transports.
	Storage storage.Account
}

// DefaultQueues is how many queues of an account are used unless configured, with up to 128
// accounts. With more, each has as many queues as leave each queue four of 4,096 segments, or of
// the configured number. Queues cost nothing; one gives at most 2,000 messages a second, an account
// 20,000. Many instances that share one queue are about ten times slower than one instance alone.
const DefaultQueues = 8
