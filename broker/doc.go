// Package broker owns the partition logs of a node. A batch goes from Append
// through the partition's replica into the storage and its journal; the answer
// comes back when it is durable. Readers get whole committed batches.
package broker
