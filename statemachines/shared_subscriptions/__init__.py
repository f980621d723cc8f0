"""Durable shared subscriptions: Borrower, Stream, Leader, Assignment (source: EIP-0028)."""
