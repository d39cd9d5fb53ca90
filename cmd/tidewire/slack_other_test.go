//go:build !linux

package main

func coarsened() {}
