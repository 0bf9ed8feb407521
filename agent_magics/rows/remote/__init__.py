"""Sends rows' questions to a model server, as fast as the server and its limits allow.

Read ``client`` first; ``gate`` decides when a request is sent, ``limits`` what all kernels may
send.
"""
