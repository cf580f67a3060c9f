"""Rejection logs of many requests, damaged, merged with the reply of one whose truth is known."""
