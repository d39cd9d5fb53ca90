// Package activity runs what has a Run(ctx) beside a test.
package activity
