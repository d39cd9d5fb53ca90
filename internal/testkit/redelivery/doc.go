// Package redelivery judges why records of a consumer group came more than once. Each
// redelivery has to be the work of something that was done to the group or its cluster, or
// that a member did itself, and that lies between the delivery before and the redelivery:
// on that record's partition, with that life of a member, or of the node that brought it.
// What nothing explains is told with its whole story.
//
// It is pure: a History goes in, a Report comes out. It knows nothing of what it judges.
package redelivery
