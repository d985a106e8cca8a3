// Package configfile reads pump.yaml, the file that both binaries share, into a [pump.Config].
//
// It is strict, because a misspelt field that is silently ignored shows up as tasks in the wrong
// place: every unknown field and wrong value is an error that names the file, the line, the field
// and the fix, and all of them are reported together. No error carries a value that may be a
// secret: neither a connection string nor an endpoint, nor anything taken from the environment.
//
//	workload: thumbnails            # required
//	accounts:                       # required, at least one
//	  - connectionString: ${ACCOUNT_1}
//	    queues: 8                   # default 8, fewer of more than 128 accounts
//	    weight: 1                   # default 1
//	    foreignQueues: [orders]     # queues that other programs put into; default: none
//	  - endpoint: https://account2.queue.core.windows.net
//	    tableEndpoint: https://account2.table.core.windows.net
//	    name: account2              # default: the account's own name
//	    serviceVersion: 2019-07-07  # for clouds that do not know the newest
//	    allowHTTP: false            # plain http to a host that is not loopback
//	    identity:                   # of an endpoint without SAS; default: DefaultAzureCredential
//	      client: system            # the machine's managed identity, or the client id of another
//	      tenant: ...               # with secret or certificate: a service principal
//	      secret: ${file:PATH}
//	      certificate: client.pem
//	control: account1               # default: the first account
//	segments: 256                   # to 16384; default: 32 a queue, 64 to 4096; 0: shared
//	delivery: at-least-once
//	foreign:                        # how messages of other programs are read
//	  encoding: auto                # or base64, or text
//	  key: city                     # the field that is the key; default: none
//	retention: 168h                 # how long rows of runs that are done with are kept; the default
//	budget:                         # of all processes together; default: the published limits
//	  account: 20000                # messages a second
//	  queue: 2000
//	  getCost: messages             # or request
//	admin:                          # health, metrics, profiles and nudges over http
//	  listen: 127.0.0.1:0           # the default, a free port; or off
//	  advertise: worker1:9090       # where others reach it; default: where it listens
//	  sample: 15s                   # how often one process looks at all queues, for metrics; or off
//	scheduledEvents: off            # or azure: leave before the machine ends
//
// ${NAME} inside a value is replaced by the environment variable NAME, after the YAML was parsed,
// so that a variable cannot change the structure of the file; $${ stands for a literal ${.
// ${file:PATH} is the line in a file: relative paths are below $CREDENTIALS_DIRECTORY, if that is
// set.
package configfile
