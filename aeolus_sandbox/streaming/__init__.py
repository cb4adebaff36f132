"""The streaming contract: tools, their handles, the spool their output waits in, the policies that read it."""
