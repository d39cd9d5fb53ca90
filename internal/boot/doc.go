// Package boot turns flags, environment and a file into the one Config a node
// runs with. It is the only place that reads them.
//
// A setting has one name. Written slow_consumer_timeout in the YAML file, it is
// --slow-consumer-timeout as a flag and TIDEWIRE_SLOW_CONSUMER_TIMEOUT as a
// variable. A flag wins over a variable, a variable over the file, the file over
// the default. A name that nobody knows is an error in each of the three, and
// the error names the nearest name that is known: a misspelt setting must never
// run as its default.
//
// Load reports every fault at once, each with the place it came from. Settings
// that the contract names and this version lacks are known by name and refused
// with the reason, so that nobody believes in a lock that is not there.
package boot
