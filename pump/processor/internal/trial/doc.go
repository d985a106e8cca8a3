// Package trial finds the task that ends its processes (P4.2, window 18). Such a task leaves no
// trace but that the messages its process had in hand are delivered once more than was written down
// about them.
//
// [Trials] suspects messages that come back like that often (suspicion.go) and cuts them in four,
// down to single tasks (split.go). Each attempt at a single task is written down before the task
// starts (attempt.go), and the last attempts are made alone in the process (trial.go). A task is
// condemned when all of its attempts ended like that. The count of deliveries does not condemn a
// task: it says where to look, and cutting an innocent message costs only requests.
package trial
