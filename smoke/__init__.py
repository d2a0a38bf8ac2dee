"""The suite on the real stack: runs it as a user would, and asserts on the evidence that it leaves."""
